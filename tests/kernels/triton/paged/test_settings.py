"""The settings that a tune tries of the paged Triton kernels."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from attnctl.exits import InputError
from attnctl.kernels.triton.launch import Device, Tiles
from attnctl.kernels.triton.paged.knobs import changed, checked, flat
from attnctl.kernels.triton.paged.plan import Knobs, Plan, knobs_for, plan
from attnctl.layer import Options, layer_of
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.tune.measure.paged_settings import paged_settings, shape_of
from attnctl.tune.settings import Limits, Work
from tests.commands.running import ROOT

H200 = Limits(arch="sm_90", units=132, shared_memory_bytes=232448)
SWEEPS = json.loads((ROOT / "benchmarks" / "results" / "h200_sweeps.json").read_text())
POINTS = (
    ("decode", 1, 256, 1),
    ("decode", 1, 8192, 1),
    ("decode", 256, 1024, 1),
    ("decode", 16, 8192, 4),
    ("prefill", 1, 128, 128),
    ("prefill", 1, 4096, 4096),
    ("prefill", 4, 8192, 512),
)


def work(phase: str, batch: int, context: int, query: int, *, page: int = 16, **sizes: Any) -> Work:
    fields = {"num_heads": 32, "num_kv_heads": 8, "head_size": 128, **sizes}
    group = LayerGroup(kind="full", layers=(0,), **fields)
    spec = ModelSpec(model_type="x", groups=(group,), dtype="bfloat16")
    layer = layer_of(spec, group, Options())
    return Work(layer=layer, phase=phase, batch=batch, context=context, query=query, page=page)


def plans(one: Work, limits: Limits = H200) -> list[tuple[int, Plan]]:
    device = Device(limits.arch, limits.units, limits.shared_memory_bytes)
    found = []
    for setting in paged_settings(one, limits):
        knobs = dict(setting.knobs)
        page = int(knobs.pop("block_size", one.page))
        found.append(
            (page, plan(shape_of(one, page), device, changed(knobs_for(limits.arch), knobs)))
        )
    return found


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("width", [64, 128, 256])
def test_at_least_forty_settings_that_all_launch_otherwise(
    point: tuple[str, int, int, int], width: int
) -> None:
    """The default first, no launch twice."""
    one = work(*point, head_size=width)
    found = plans(one)
    assert len(found) >= 40
    assert len(set(found)) == len(found)
    assert found[0] == (
        16,
        plan(shape_of(one, 16), Device("sm_90", 132, 232448), knobs_for("sm_90")),
    )


def needed(shape: Any, chosen: Plan) -> int:
    """Shared memory of a tile's query, staged keys and values, and weights; in bytes."""
    keys = chosen.tile * (shape.width + shape.value_width) * chosen.stages * shape.cache_bytes
    query = chosen.rows * shape.width * shape.item_bytes
    return keys + query + chosen.rows * chosen.tile * shape.item_bytes


@pytest.mark.parametrize("shared", [65536, 101376, 232448])
def test_no_setting_needs_more_shared_memory_than_a_block_has(shared: int) -> None:
    """Checked by arithmetic of its own, on a T4's, an L40's and an H200's limit."""
    limits = Limits(arch="sm_90", units=132, shared_memory_bytes=shared)
    for point in POINTS:
        one = work(*point)
        for page, chosen in plans(one, limits)[1:]:
            if chosen.tile > 16 or chosen.stages > 1:
                assert needed(shape_of(one, page), chosen) <= shared


def swept() -> list[Any]:
    """The best setting of each hand sweep in bfloat16."""
    rows = []
    for row in SWEEPS:
        batch, context, query, page, *rest = row["shape"].split(" ", 4)
        if "torch" in "".join(rest):
            continue
        sizes = ast.literal_eval(rest[0]) if rest and rest[0].strip() else {}
        best = ast.literal_eval(min(row["times"], key=row["times"].get))
        rows.append(pytest.param(row["group"].split()[1], int(batch[1:]), int(context[1:]),
                                 int(query[1:]), int(page[4:]), sizes, best,
                                 id=f"{row['group']} {row['shape']}"))  # fmt: skip
    return rows


@pytest.mark.parametrize(("kind", "batch", "context", "query", "page", "sizes", "best"), swept())
def test_the_best_of_the_hand_sweeps_are_among_them(
    kind: str, batch: int, context: int, query: int, page: int, sizes: dict[str, int], best: Any
) -> None:
    """A tune never has less to choose from than a person had; a cut within a factor of two."""
    names = {"width": "head_size", "value_width": "head_size_v", "heads": "num_heads",
             "kv_heads": "num_kv_heads"}  # fmt: skip
    renamed = {names[name]: value for name, value in sizes.items()}
    phase = "decode" if kind == "decode" else "prefill"
    found = [
        chosen for _, chosen in plans(work(phase, batch, context, query, page=page, **renamed))
    ]
    if kind == "prefill":
        rows, keys, warps, stages = best
        assert any(
            (p.rows, p.tile, p.warps, p.stages) == (rows, keys, warps, stages) for p in found
        )
        return
    keys, warps, stages, segments = best
    # a sweep's tile was made smaller where it did not fit, and so were its segments
    asked = Knobs(min_programs=10**9, fill=10**9, segments=segments, least_keys=keys,
                  decode=Tiles(16, keys, warps, stages))  # fmt: skip
    one = work(phase, batch, context, query, page=page, **renamed)
    ran = plan(shape_of(one, page), Device("sm_90", 132, 232448), asked)
    keys, warps, stages, segments = ran.tile, ran.warps, ran.stages, ran.segments
    same = [p for p in found if (p.tile, p.warps, p.stages) == (keys, warps, stages)]
    assert any(p.segments <= segments <= 2 * p.segments or p.segments == 2 * segments for p in same)


def test_knobs_go_to_flat_names_and_back() -> None:
    """Every field has one name; a change touches nothing else."""
    base = Knobs()
    assert changed(base, flat(base)) == base
    assert changed(base, {"decode.keys": 32, "fill": 7}) == Knobs(
        fill=7, decode=Tiles(16, 32, 4, 3)
    )


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"decode.key": 64}, "Did you mean decode.key"),
        ({"decode.keys": 48}, "must be a power of two"),
        ({"decode.keys": "64"}, "must be int"),
        ({"descriptors": 1}, "must be bool"),
        ({"prefill.stages": 0}, "must be at least 1"),
        ({"segments": -1}, "must be a power of two"),
        ({"decode.warps": 0}, "must be a power of two"),
    ],
)
def test_a_knob_that_makes_no_sense_is_refused(knobs: dict[str, Any], says: str) -> None:
    """A profile that was edited by hand must not crash a kernel."""
    with pytest.raises(InputError) as caught:
        checked("TRITON_ATTN", knobs)
    assert says in str(caught.value)
    assert checked("TRITON_ATTN", {"block_size": 128}) == {}


def test_a_tile_that_tensor_memory_cannot_hold_is_not_tried_on_blackwell() -> None:
    """MiMo-V2's prefill: Triton makes a kernel of it that only traps, and none of half the keys."""
    sizes = {"num_heads": 64, "num_kv_heads": 4, "head_size": 192, "head_size_v": 128}
    one = work("prefill", 1, 2048, 2048, **sizes)
    b200 = Limits(arch="sm_100", units=148, shared_memory_bytes=232448)
    tried, elsewhere = (
        {(chosen.rows, chosen.tile) for _, chosen in plans(one, limits) if chosen.rows == 256}
        for limits in (b200, H200)
    )
    assert tried == {(256, 32)}
    assert (256, 64) in elsewhere
