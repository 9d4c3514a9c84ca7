"""The library as its documentation says: public names, and a backend opened and called."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

import attnctl
from attnctl import machines
from attnctl.exits import InputError
from tests.commands.running import LLAMA


def test_every_public_name_is_there() -> None:
    """Each name of __all__ loads from its home."""
    for name in attnctl.__all__:
        assert getattr(attnctl, name) is not None
    assert attnctl.load_registry().get("CPU_ATTN") is not None


def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    """attnctl.select, attnctl.probe: functions, whichever submodules are loaded already."""
    import attnctl.probe
    import attnctl.select

    assert attnctl.select.__name__ == "select"
    assert attnctl.probe.__name__ == "probe"
    assert attnctl.probe().platform


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import attnctl` in a fresh interpreter brings neither torch nor a command."""
    heavy = "torch", "typer", "msgspec"
    code = f"import sys, attnctl; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_planned_backend_is_refused_by_name() -> None:
    """One sentence, and no half-open runtime."""
    registry = attnctl.load_registry()
    planned = msgspec.structs.replace(registry.backends[0], name="SOON", kernel="planned")
    with pytest.raises(InputError, match="SOON: its kernel is planned"):
        attnctl.open_backend("SOON", msgspec.structs.replace(registry, backends=(planned,)))


def test_one_batch_goes_through_a_backend_as_the_documentation_shows() -> None:
    """Three tokens of one sequence on CPU_ATTN equal torch's own causal attention."""
    import torch

    from attnctl.ops.paged import Paged

    backend = attnctl.open_backend("CPU_ATTN")
    size, heads, kv_heads = 64, 4, 2
    cache = torch.zeros(backend.cache_shape(2, 32, kv_heads, size))
    query, key, value = (torch.randn(3, n, size) for n in (heads, kv_heads, kv_heads))
    starts, lens = torch.tensor([0, 3], dtype=torch.int32), torch.tensor([3], dtype=torch.int32)
    table, slots = torch.tensor([[1]], dtype=torch.int32), torch.arange(32, 35)
    metadata = backend.build_metadata(starts, lens, table, slots, max_query_len=3, max_seq_len=3)
    params = Paged(scale=size**-0.5)
    backend.write_cache(key, value, cache, metadata, params)
    out = backend.forward(query, cache, metadata, params)
    sides = [x.transpose(0, 1)[None] for x in (query, key, value)]
    want = torch.nn.functional.scaled_dot_product_attention(*sides, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(out, want[0].transpose(0, 1), atol=1e-5, rtol=1e-5)


def test_a_plan_for_a_device_or_a_machine_that_is_none_is_one_sentence() -> None:
    """A device that the machine lacks, and a machine's name in place of the machine."""
    with pytest.raises(InputError, match="device 7: h200 has only device 0"):
        attnctl.plan(LLAMA, machines.load("h200"), device=7, profile="none")
    with pytest.raises(InputError, match=r"give a Machine, as attnctl\.machines\.load\('h200'\)"):
        attnctl.plan(LLAMA, "h200", profile="none")
