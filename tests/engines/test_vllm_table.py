"""The table of a version: it is whole, and versions are found by name."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.engines import vllm
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import Order
from attnctl.engines.vllm.selector import choose
from attnctl.exits import InputError
from attnctl.layer import OPS
from attnctl.model.spec import SSM_KINDS

TABLES = list(vllm.VERSIONS.values())


def names_of(orders: tuple[Order, ...]) -> set[str]:
    return {name for order in orders for name, _ in order.names}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.version)
def test_every_candidate_has_a_row(table: vllm.Table) -> None:
    """A name in an order without a row would fail at the first layer that reaches it."""
    for orders in table.orders.values():
        assert names_of(orders) <= set(table.backends)
    assert {name for name, _ in table.unequal_widths} <= set(table.backends)
    for platform, orders in table.prefill_orders.items():
        assert names_of(orders) <= set(table.prefill[platform])
    for branches in table.branches.values():
        assert {b.valid for b in branches if b.valid} <= set(table.backends)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.version)
def test_every_step_ends_in_a_pick_or_an_explained_error(table: vllm.Table) -> None:
    """A branch has one of the two, and an error says what it comes from."""
    for branches in table.branches.values():
        assert all((branch.pick is None) == (branch.error is not None) for branch in branches)
        assert all(branch.because for branch in branches if branch.error)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.version)
def test_every_platform_and_kind_of_state_is_answered(table: vllm.Table) -> None:
    """CUDA, ROCm, XPU and CPU each have a way to choose; each kind of state has its backend."""
    assert set(table.orders) | set(table.branches) == {"cuda", "rocm", "xpu", "cpu"}
    assert set(table.default_block_sizes) == {"cuda", "rocm", "xpu", "cpu"}
    assert set(table.state_backends) == SSM_KINDS
    assert set(OPS) >= SSM_KINDS


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.version)
def test_every_listed_check_says_what_it_wants(table: vllm.Table) -> None:
    """A reason without a wanted value is what vLLM itself is blamed for."""
    layer = Layer(head_size=7, dtype="int8", kv_cache_dtype="odd", block_size=7, has_sink=True)
    facts = Facts(platform="cuda", arch="3.5", capability=(3, 5), have=frozenset({"fa2"}))
    chosen = choose(table, facts, layer)
    assert set(chosen.rejected) == set(chosen.priority)
    for findings in chosen.rejected.values():
        assert findings
        assert all(finding.wanted and finding.found for finding in findings)


def test_versions_are_found_by_long_and_short_name() -> None:
    """0.33 is 0.33.0; nothing at all is the newest; an unknown one is named."""
    assert vllm.table_of("0.33") is vllm.table_of("0.33.0") is vllm.table_of()
    with pytest.raises(InputError, match=r"--engine-version 0\.1"):
        vllm.table_of("0.1")


def test_a_new_version_is_a_new_table() -> None:
    """Another order of the same rows changes the pick; no code does."""
    table = vllm.table_of()
    reversed_orders = {
        platform: tuple(Order(o.when, o.names[::-1]) for o in orders)
        for platform, orders in table.orders.items()
    }
    other = msgspec.structs.replace(table, version="9.9", orders=reversed_orders)
    facts = Facts(platform="cuda", arch="8.0", capability=(8, 0), have=frozenset({"fa2"}))
    layer = Layer(head_size=64)
    assert choose(table, facts, layer).pick == "FLASH_ATTN"
    assert choose(other, facts, layer).pick == "FLEX_ATTENTION"
