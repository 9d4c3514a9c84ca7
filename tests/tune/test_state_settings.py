"""The launches of kernels of states that a tune tries, and those that could not load."""

from __future__ import annotations

from attnctl.ops.catalog import case_of, layer_for
from attnctl.tune.measure.state_settings import state_settings
from attnctl.tune.settings import Limits, Work


def test_a_walk_that_a_small_shared_memory_cannot_hold_is_not_tried() -> None:
    """Compiled for gfx942 they take 68 and 84 KiB of the 64 that a block has."""
    layer = layer_for(case_of("gdn", {}))
    work = Work(layer=layer, phase="prefill", batch=1, context=2048, query=2048, page=0)
    tried = {}
    for arch, kib in (("gfx942", 64), ("sm_90", 227)):
        limits = Limits(arch=arch, units=100, shared_memory_bytes=kib << 10)
        knobs = [setting.knobs for setting in state_settings("gdn", work, limits)]
        tried[arch] = {(one.get("chunks.rows"), one.get("chunks.stages")) for one in knobs}
    assert tried["sm_90"] - tried["gfx942"] == {(64, 3), (128, 3)}
    assert tried["gfx942"] < tried["sm_90"]


def walks(arch: str, kib: int, **widths: int) -> set[tuple[object, ...]]:
    """rows, warps, stages and chunk of each walk of mamba2 that is tried."""
    layer = layer_for(case_of("mamba2", widths))
    work = Work(layer=layer, phase="prefill", batch=1, context=2048, query=2048, page=0)
    limits = Limits(arch=arch, units=100, shared_memory_bytes=kib << 10)
    names = [f"chunks.{name}" for name in ("rows", "warps", "stages", "chunk")]
    found = state_settings("mamba2", work, limits)
    return {tuple(one.knobs[name] for name in names) for one in found if names[0] in one.knobs}


def test_walks_of_mamba2_that_did_not_fit_any_device_of_a_size_are_not_tried() -> None:
    """Those of Nemotron-H and Falcon-H1 that triton 3.6 and 3.7 compile to more than there is."""
    whole = walks("sm_90", 227, heads=128, groups=8, state_size=128)
    small = {(64, 4, 3, 64), (32, 4, 3, 64), (64, 4, 2, 128), (32, 4, 2, 128), (32, 2, 3, 64)}
    assert whole - walks("gfx942", 64, heads=128, groups=8, state_size=128) == small
    assert walks("gfx950", 160, heads=128, groups=8, state_size=128) == whole
    middle = {(64, 4, 3, 64), (64, 4, 2, 128), (32, 4, 2, 128)}
    assert whole - walks("sm_120", 99, heads=128, groups=8, state_size=128) == middle
    wide = walks("sm_90", 227, heads=32, state_size=256)
    assert wide == whole == walks("gfx942", 64, heads=32, state_size=256)
    assert {one[0] for one in wide - walks("sm_80", 163, heads=32, state_size=256)} == {64}
    left = walks("sm_120", 99, heads=32, state_size=256)
    assert left
    assert {one for one in left if one[3] == 128 or (one[0] >= 64 and one[3] == 64)} == set()
