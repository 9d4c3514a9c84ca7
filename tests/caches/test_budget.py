"""The cache of a whole model: block raised for states, what a sequence takes, what fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnctl import machines
from attnctl.caches.budget import CachePlan
from attnctl.exits import InputError
from attnctl.machines.assumed import assume
from attnctl.model import read_model
from attnctl.registry import load
from attnctl.render.costs import plan_lines
from attnctl.selection.answer import answer
from attnctl.selection.options import read_options
from attnctl.selection.report import SelectReport

MODELS = Path(__file__).parent.parent / "models"
GIB = 1024**3


def asked(model: str, machine: str = "h200", **options: Any) -> SelectReport:
    registry = load()
    spec = read_model(MODELS / f"{model}.json")
    assumption = assume(machines.load(machine), None, registry)
    return answer(spec, assumption, registry, read_options(registry, **options))


def planned(model: str, machine: str = "h200", **options: Any) -> CachePlan:
    cache = asked(model, machine, **options).cache
    assert cache is not None
    return cache


def test_a_plain_model_keeps_the_block_of_its_backend() -> None:
    """128 KiB a token: 16 sequences of 8,192 tokens in 16 GiB."""
    plan = planned("llama-3.1-8b", max_model_len=8192, cache_memory="16GiB")
    assert (plan.block_size, plan.raised_from, plan.padding_percent) == (16, None, None)
    assert plan.sequence_bytes == GIB
    assert (plan.sequences, plan.tokens) == (16, 16 * 8192)


def test_a_hybrids_block_grows_until_its_page_holds_a_state() -> None:
    """Jamba: conv 3 x 8192 and ssm 8192 x 16 in bfloat16 are 311,296 bytes; 80 tokens of 4096."""
    plan = planned("jamba-1.5-mini", max_model_len=1)
    assert (plan.block_size, plan.raised_from) == (80, 16)
    assert (plan.page_bytes, plan.state_page_bytes) == (327680, 311296)
    assert plan.padding_percent == 5.0
    assert plan.sequence_state_bytes == 28 * 327680


@pytest.mark.parametrize(
    ("machine", "unit", "block"), [("h200", 64, 576), ("zen3", 128, 640), ("mi300x", 64, 576)]
)
def test_the_block_is_a_multiple_of_what_every_layers_kernel_takes(
    machine: str, unit: int, block: int
) -> None:
    """GDN cuts chunks of 64, AITER of 64, CPU_ATTN asks for 128: Qwen3-Next's 536 grows so far."""
    plan = planned("qwen3-next-80b-a3b", machine)
    assert plan.block_size == block
    assert plan.block_size % unit == 0
    assert plan.page_bytes is not None
    assert plan.state_page_bytes is not None
    assert plan.page_bytes >= plan.state_page_bytes > plan.page_bytes - unit * 2048


def test_the_groups_costs_show_the_raised_block() -> None:
    """The page of the table is the page of the plan."""
    report = asked("qwen3-next-80b-a3b")
    (paged,) = [g.cost for g in report.groups if g.cost is not None and g.cost.token_bytes]
    assert report.cache is not None
    assert (paged.block_size, paged.block_bytes) == (576, report.cache.page_bytes)


def test_a_block_that_the_user_fixes_is_only_raised() -> None:
    """4096 tokens hold the state already; the padding says what that costs."""
    plan = planned("jamba-1.5-mini", block_size=4096)
    assert (plan.block_size, plan.raised_from) == (4096, None)
    assert plan.padding_percent == pytest.approx(98.14, abs=0.01)


def test_drafts_take_slots_of_their_own_and_widen_the_convolution() -> None:
    """K drafts: 1 + K slots a sequence and K more rows of the convolution's state."""
    alone, drafting = (planned("qwen3-next-80b-a3b", speculative_tokens=k) for k in (0, 3))
    assert (alone.slots_per_sequence, drafting.slots_per_sequence) == (1, 4)
    assert alone.state_page_bytes is not None
    assert drafting.state_page_bytes == alone.state_page_bytes + 3 * 8192 * 2
    assert drafting.page_bytes is not None
    assert drafting.sequence_state_bytes == 4 * 36 * drafting.page_bytes
    assert any("4 slots a sequence" in line for line in plan_lines(drafting))


def test_a_model_of_states_alone_takes_no_blocks() -> None:
    """Codestral Mamba: the length of a sequence does not matter."""
    plan = planned("codestral-mamba-7b", cache_memory="8GiB")
    assert (plan.block_size, plan.page_bytes, plan.sequence_tokens) == (None, None, None)
    assert plan.sequence_bytes == plan.sequence_state_bytes
    assert plan.sequences == 8 * GIB // plan.sequence_state_bytes


def test_a_window_bounds_its_layers_in_whole_blocks() -> None:
    """Gemma 3: 52 layers keep 1,024 tokens, 10 keep all of 32,768; 8,192 bytes a token each."""
    plan = planned("gemma-3-27b", max_model_len=32768)
    assert plan.sequence_bytes == 8192 * (52 * 1024 + 10 * 32768)


def test_ranks_share_the_cache() -> None:
    """Two ranks keep half the heads and half the state each."""
    one, two = (planned("jamba-1.5-mini", tp=tp, max_model_len=8192) for tp in (1, 2))
    assert two.sequence_bytes is not None
    assert one.sequence_bytes == 2 * two.sequence_bytes


def test_the_devices_memory_is_the_bound_where_none_is_given() -> None:
    """And the plan says that the weights are in it."""
    plan = planned("llama-3.1-8b", "h200")
    assert plan.memory_bytes == machines.load("h200").gpus[0].memory.total_bytes
    assert "weights are not taken off" in " ".join(plan_lines(plan))


def test_a_machine_of_unknown_memory_still_says_what_a_sequence_takes() -> None:
    """Processors among the bundled machines state no memory."""
    plan = planned("llama-3.1-8b", "zen3", max_model_len=8192)
    assert plan.sequences is None
    assert list(plan_lines(plan)) == [
        "a sequence of 8,192 tokens takes 1 GiB; how many fit is not known: --cache-memory says "
        "what there is"
    ]


def test_a_pick_with_32_bit_offsets_says_where_they_end() -> None:
    """FLEX_ATTENTION: 2**31 elements of 2,048 a token are 1,048,576 tokens of a layer."""
    plan = planned("llama-3.1-8b", backend=("FLEX_ATTENTION",), cache_memory="1T")
    (note,) = plan.notes
    assert "65,536 blocks (1,048,576 tokens)" in note
    assert planned("llama-3.1-8b", backend=("FLEX_ATTENTION",), cache_memory="64G").notes == ()


def test_nothing_is_planned_where_a_groups_size_is_not_known() -> None:
    """A group without a pick has no block size."""
    assert asked("llama-3.1-8b", tp=3).cache is None


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (("", "40X", "nan", "GiB"), "not a size; give one, as 40GiB"),
        (("0", "-1", "0.5", "-inf", "0GiB"), "must be more than 0 bytes, as 40GiB"),
        (("1e30", "inf", "1025T", "9e99g"), r"more than any device has \(1024TiB\)"),
    ],
)
def test_a_size_that_is_none_is_told_from_one_that_cannot_be(
    sizes: tuple[str, ...], said: str
) -> None:
    """Each sentence says what to do: how to write one, that it is too small, that it is absurd."""
    for size in sizes:
        with pytest.raises(InputError, match=f"--cache-memory {size!r}: {said}"):
            read_options(load(), cache_memory=size)


@pytest.mark.parametrize(
    ("text", "count"), [("1024", 1024), ("40GiB", 40 * GIB), ("40g", 40 * GIB), ("1.5kb", 1536)]
)
def test_sizes_are_read_as_engines_read_them(text: str, count: int) -> None:
    """Powers of 1024, with or without the i and the B."""
    assert read_options(load(), cache_memory=text).cache_memory == count
