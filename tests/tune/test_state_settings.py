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
