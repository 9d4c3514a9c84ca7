"""One block size for all layers: what each costs by the timings, and the answer on the best."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import attnctl
from attnctl.exits import InputError
from attnctl.layer import Options, layer_of
from attnctl.machine import Machine
from attnctl.machines import load as load_machine
from attnctl.machines.assumed import assume
from attnctl.model import read_model
from attnctl.model.spec import ModelSpec
from attnctl.profile.document import key_of, shape_of
from attnctl.profile.values import Entry, Point, Profile, Rejected, Timing
from attnctl.registry import Backend, Registry, load
from attnctl.render.block_sizes import said
from attnctl.requirements import block_size
from attnctl.select import select_model
from attnctl.selection.answer import answer
from attnctl.selection.one_block import one_block, settled
from attnctl.selection.timed import BlockCost, OneBlock
from tests.commands.running import MODELS
from tests.profile.factory import machine

FLASH, TRITON = "FLASH_ATTN", "TRITON_ATTN"
PLACES = ((1, 1024), (16, 4096))
GPT_OSS = read_model(MODELS / "gpt-oss-20b.json")
GEMMA = read_model(MODELS / "gemma-2-9b.json")
H200 = machine("h200")

Sized = dict[tuple[str, int | None], float]
"""Backend and block size (None: its own) -> microseconds; the first size met is the chosen one."""


def timing(backend: str, size: int | None, time_us: float, **more: Any) -> Timing:
    knobs = {"block_size": size} if size else {}
    return Timing(backend=backend, median_us=time_us, knobs=knobs, **more)


def entry(spec: ModelSpec, group: int, times: Sized, **more: Any) -> Entry:
    """The shape of a group, with the same times at both places."""
    chosen = next(size for _, size in times)
    timings = [timing(name, size, time, **more) for (name, size), time in times.items()]
    points = tuple(
        Point(
            phase="decode",
            batch=batch,
            context=context,
            timings=tuple(one for one in timings if one.block_size == chosen),
            others=tuple(one for one in timings if one.block_size != chosen),
        )
        for batch, context in PLACES
    )
    shape = shape_of(layer_of(spec, spec.groups[group], Options()))
    return Entry(shape=shape.full, points=points)


def profile(*entries: Entry, box: Machine = H200) -> Profile:
    return Profile(name="p", key=key_of(box, box.gpus[0] if box.gpus else None), entries=entries)


def costs(
    found: Profile | None,
    spec: ModelSpec = GPT_OSS,
    box: Machine = H200,
    options: Options | None = None,
) -> OneBlock | None:
    options = options or Options()
    decisions = select_model(spec, box, load(), options, profile=found)
    return one_block(decisions, spec, box, load(), options, profile=found)


WINDOWED: Sized = {
    (FLASH, None): 20.0,
    (TRITON, None): 10.0,
    (FLASH, 128): 13.0,
    (TRITON, 128): 14.0,
}
FULL: Sized = {
    (FLASH, 128): 150.0,
    (TRITON, 128): 100.0,
    (FLASH, None): 160.0,
    (TRITON, None): 130.0,
}


def test_each_size_costs_what_all_layers_take_on_it() -> None:
    """12 layers of each: 12 x (10 + 100) by themselves, 12 x (10 + 130) and 12 x (13 + 100)."""
    usual = {"default_us": 500.0}  # what settings took counts, and not what the defaults did
    found = costs(profile(entry(GPT_OSS, 0, WINDOWED, **usual), entry(GPT_OSS, 1, FULL, **usual)))
    assert found is not None
    assert (found.own, found.best, found.taken) == ((16, 128), 128, False)
    assert [(one.tokens, one.points) for one in found.sizes] == [(16, 2), (128, 2)]
    assert [one.ratio for one in found.sizes] == pytest.approx([140 / 110, 113 / 110])


def test_layers_count_by_their_number() -> None:
    """Gemma 3 has five windowed layers for one that is full: what they lose outweighs it.

    FLASH_ATTN has no bidirectional images, and what it took counts nowhere.
    """
    spec = read_model(MODELS / "gemma-3-27b.json")
    groups = {len(group.layers): place for place, group in enumerate(spec.groups)}
    few, many = min(groups), max(groups)
    assert (few, many) == (10, 52)
    found = costs(
        profile(entry(spec, groups[many], WINDOWED), entry(spec, groups[few], FULL)), spec
    )
    assert found is not None
    usual = 52 * 10 + 10 * 100
    wanted = [(52 * 10 + 10 * 130) / usual, (52 * 14 + 10 * 100) / usual]
    assert [one.ratio for one in found.sizes] == pytest.approx(wanted)


def test_points_count_by_their_weights() -> None:
    """One that is met three times as often has three votes on the mean of the logarithms."""

    def weighed(made: Entry, slow: float) -> Entry:
        first, second = made.points
        timings = tuple(
            msgspec.structs.replace(one, median_us=one.median_us * slow) for one in second.others
        )
        second = msgspec.structs.replace(second, weight=3.0, others=timings)
        return msgspec.structs.replace(made, points=(first, second))

    found = costs(
        profile(weighed(entry(GPT_OSS, 0, WINDOWED), 2.0), weighed(entry(GPT_OSS, 1, FULL), 1.0))
    )
    assert found is not None
    assert found.sizes[1].ratio == pytest.approx((113 / 110 * (126 / 110) ** 3) ** 0.25)


def test_a_size_that_was_not_timed_for_a_group_has_no_cost() -> None:
    """It is said and not guessed; the best is one that was timed for all."""
    alone = {which: time for which, time in WINDOWED.items() if which[1] is None}
    found = costs(profile(entry(GPT_OSS, 0, alone), entry(GPT_OSS, 1, FULL)))
    assert found is not None
    assert (found.best, found.differs, found.is_timed) == (16, True, True)
    assert found.sizes[1] == BlockCost(tokens=128, untimed=(0,))
    assert said(found, ("sliding", "full")) == (
        "blocks of 16 and 128 tokens; serving engines have one for all layers (--block-size same "
        "takes 16): 16 costs 1.27x the time over 2 points, 128 was not timed for sliding"
    )


def test_where_only_defaults_were_timed_on_a_size_its_cost_is_the_most_it_can_be() -> None:
    """Every timing brings along what the backend's defaults took on the size of its own."""
    alone = {which: time for which, time in WINDOWED.items() if which[1] is None}
    chosen = {which: time for which, time in FULL.items() if which[1] == 128}
    plain = entry(GPT_OSS, 1, chosen, default_us=165.0)
    found = costs(profile(entry(GPT_OSS, 0, alone), plain))
    assert found is not None
    assert (found.sizes[0].plain, found.sizes[0].points) == ((1,), 2)
    assert found.sizes[0].ratio == pytest.approx((10 + 165) / 110)
    assert "16 costs at most 1.59x the time over 2 points (defaults alone were timed for full)" in (
        said(found, ("sliding", "full"))
    )


def test_defaults_on_a_size_that_the_user_had_fixed_are_of_that_size() -> None:
    """They say nothing of the size that a backend has by itself."""
    alone = {which: time for which, time in WINDOWED.items() if which[1] is None}
    chosen = {which: time for which, time in FULL.items() if which[1] == 128}
    fixed = entry(GPT_OSS, 1, chosen, default_us=165.0, default_block=128)
    found = costs(profile(entry(GPT_OSS, 0, alone), fixed))
    assert found is not None
    assert [one.untimed for one in found.sizes] == [(1,), (0,)]


def test_without_timings_the_size_of_most_layers_is_taken() -> None:
    """MI300X, Whisper: AITER's unified attention asks for 64, and the decoder has as many of 16."""
    spec, box = read_model(MODELS / "whisper-large-v3.json"), machine("mi300x")
    found = costs(None, spec, box)
    assert found == OneBlock(
        own=(16, 64),
        sizes=(BlockCost(tokens=16, untimed=(1, 2)), BlockCost(tokens=64, untimed=(1, 2))),
        best=16,
    )
    names = ("encoder", "full", "cross")
    assert said(found, names).endswith("no size was timed for full and cross")


def test_a_backend_that_asks_for_64_is_timed_by_itself_on_64() -> None:
    """Its timings name no size: they are of its own, and TRITON_ATTN's beside them of 16."""
    box, aiter = machine("mi300x"), "ROCM_AITER_UNIFIED_ATTN"
    options = Options(backend=(("sliding", aiter), ("full", TRITON)))
    made = profile(
        entry(GPT_OSS, 0, {(aiter, None): 10.0, (aiter, 16): 11.0}),
        entry(GPT_OSS, 1, {(TRITON, None): 40.0, (TRITON, 64): 30.0}),
        box=box,
    )
    found = costs(made, box=box, options=options)
    assert found is not None
    assert (found.own, found.best) == ((16, 64), 64)
    assert [one.ratio for one in found.sizes] == pytest.approx([51 / 50, 40 / 50])


def test_a_size_that_no_backend_of_a_group_takes_is_refused() -> None:
    """Llama 4: FLASH_ATTN wants chunks of 8192 tokens to be whole blocks, and 48 is no part."""
    spec = read_model(MODELS / "llama-4-scout.json")
    kinds = [group.kind for group in spec.groups]
    chunked, full = kinds.index("chunked"), kinds.index("full")
    options = Options(backend=(("chunked", FLASH), ("full", TRITON)))
    found = costs(profile(entry(spec, full, {(TRITON, 48): 10.0})), spec, options=options)
    assert found is not None
    assert (found.own, found.best) == ((16, 48), 16)
    assert [one.refused for one in found.sizes] == [(), (chunked,)]
    assert found.sizes[1].untimed == ()
    assert "48 is served by no backend for" in said(found, kinds)


def one_of(name: str, tokens: int) -> Backend:
    """CPU_ATTN under another name, with blocks of so many tokens and their multiples."""
    own = load().get("CPU_ATTN")
    assert own is not None
    others = (rule for rule in own.rules if rule.code != "block_size")
    return msgspec.structs.replace(
        own,
        name=name,
        rules=(*others, block_size(multiple_of=tokens)),
        block_multiple=tokens,
        prefers_block=tokens,
    )


def test_where_no_size_serves_all_groups_the_answer_is_no() -> None:
    """One takes multiples of 96 alone and the other of 128: neither is silently replaced."""
    registry = Registry((one_of("NARROW", 96), one_of("WIDE", 128)))
    demands = (("sliding", "NARROW"), ("full", "WIDE"))
    box = assume(load_machine("zen3"), "usual", load())
    options = Options(backend=demands, one_block_size=True)
    report = answer(GEMMA, box, registry, options)
    said_no = "--block-size same: no backend serves every group of layers with blocks of 96 and 128"
    assert (report.unmet, report.exit_code) == ((said_no,), 1)
    assert report.one_block is not None
    assert (report.one_block.best, report.one_block.taken) == (None, False)
    assert answer(GEMMA, box, registry, Options(backend=demands)).exit_code == 0
    with pytest.raises(InputError, match="no one size serves all layers: blocks of 96 and 128"):
        attnctl.plan(GEMMA, box.machine, profile="none", options=options, registry=registry)


def test_groups_that_agree_have_nothing_to_say() -> None:
    """The answer holds no costs, and so no note is shown."""
    chosen = {which: time for which, time in FULL.items() if which[1] == 128}
    found = profile(entry(GPT_OSS, 0, chosen), entry(GPT_OSS, 1, chosen))
    decisions = select_model(GPT_OSS, H200, load(), profile=found)
    asked = Options(one_block_size=True)
    under, options, told = settled(decisions, GPT_OSS, H200, load(), asked, profile=found)
    assert [one.pick.block_size for one in under if one.pick] == [128, 128]
    assert options.block_size == 128
    assert told is not None
    assert (told.differs, told.is_timed) == (False, True)
    report = answer(GPT_OSS, assume(load_machine("h200"), "usual", load()), load(), asked)
    assert report.one_block is None


def test_the_answer_on_one_size_follows_from_the_timings_on_it() -> None:
    """By itself the window takes TRITON_ATTN; with blocks of 128 FLASH_ATTN is the faster there."""
    found = profile(entry(GPT_OSS, 0, WINDOWED), entry(GPT_OSS, 1, FULL))
    own = select_model(GPT_OSS, H200, load(), profile=found)
    assert [(d.pick.name, d.pick.block_size) for d in own if d.pick] == [
        (TRITON, 16),
        (TRITON, 128),
    ]
    asked = Options(one_block_size=True)
    under, options, told = settled(own, GPT_OSS, H200, load(), asked, profile=found)
    assert [(d.pick.name, d.pick.block_size) for d in under if d.pick] == [
        (FLASH, 128),
        (TRITON, 128),
    ]
    assert options.block_size == 128
    assert told is not None
    assert told.taken
    assert said(told, ("sliding", "full")).startswith(
        "one block size for all layers, 128 tokens, in place of blocks of 16 and 128 tokens: "
    )


def test_states_have_no_say() -> None:
    """Layers that keep states by slot stand beside; a size for the others is found all the same."""
    hybrid = read_model(MODELS / "qwen3-next-80b-a3b.json")
    states = next(group for group in hybrid.groups if group.is_ssm)
    spec = msgspec.structs.replace(GPT_OSS, groups=(states, *GPT_OSS.groups))
    found = costs(profile(entry(GPT_OSS, 0, WINDOWED), entry(GPT_OSS, 1, FULL)), spec)
    assert found is not None
    assert [one.ratio for one in found.sizes] == pytest.approx([140 / 110, 113 / 110])
    assert costs(None, msgspec.structs.replace(spec, groups=(states,))) is None


def test_a_size_that_was_not_timed_leaves_the_default_order_and_says_so() -> None:
    """Timings on other sizes are no answer for the one that the user named."""
    found = profile(entry(GPT_OSS, 0, WINDOWED), entry(GPT_OSS, 1, FULL))
    options = Options(block_size=64)
    decision = select_model(GPT_OSS, H200, load(), options, profile=found)[1]
    assert decision.pick is not None
    assert (decision.pick.name, decision.pick.evidence) == (FLASH, "default")
    assert decision.notes == ("timed with 16 and 128 tokens in a block, and not with 64",)
    (hollow,) = profile(entry(GPT_OSS, 1, {(FLASH, 128): 1.0})).entries
    points = tuple(msgspec.structs.replace(one, timings=()) for one in hollow.points)
    nothing = profile(msgspec.structs.replace(hollow, points=points))
    decision = select_model(GPT_OSS, H200, load(), options, profile=nothing)[1]
    assert not any("tokens in a block" in note for note in decision.notes)


def test_a_backend_that_failed_on_a_size_is_passed_over_on_it() -> None:
    """FLASH_ATTN stands first by default and was wrong with blocks of 128."""
    made = entry(GPT_OSS, 0, {which: t for which, t in WINDOWED.items() if which != (FLASH, 128)})
    wrong = Rejected(backend=FLASH, knobs={"block_size": 128}, why="wrong")
    points = tuple(msgspec.structs.replace(one, rejected=(wrong,)) for one in made.points)
    made = msgspec.structs.replace(made, points=points)
    box = assume(load_machine("h200"), "torch,triton,flash_attn_4", load()).machine
    eligible = [one.name for one in select_model(GPT_OSS, box, load())[0].candidates if one.ok]
    assert eligible == [FLASH, TRITON]
    found = costs(profile(made, entry(GPT_OSS, 1, FULL)), box=box)
    assert found is not None
    assert found.sizes[1].ratio == pytest.approx(114 / 110)


CPU = "CPU_ATTN"


def planned(*entries: Entry, **options: Any) -> attnctl.Plan:
    box = machine("zen3")
    found = profile(*entries, box=box)
    return attnctl.plan(GEMMA, box, profile=found, options=Options(**options))


def test_a_plan_on_one_size_lays_all_caches_out_in_it() -> None:
    """With the knobs that were timed on it; without the option each group has its own."""
    many = [timing(CPU, 256, 12.0), timing(CPU, None, 10.0)]
    many[0] = msgspec.structs.replace(many[0], knobs={"block_size": 256, "threads": 1})

    def both(group: int, chosen: int) -> Entry:
        made = entry(GEMMA, group, {(CPU, None): 10.0})
        points = tuple(
            msgspec.structs.replace(p, timings=(many[chosen],), others=(many[1 - chosen],))
            for p in made.points
        )
        return msgspec.structs.replace(made, points=points)

    entries = both(0, 1), both(1, 0)
    assert {layer.block_size for layer in planned(*entries).groups} == {128, 256}
    plan = planned(*entries, one_block_size=True)
    assert [layer.block_size for layer in plan.groups] == [128, 128]
    assert [dict(layer.pick(1, 1024, 1).knobs) for layer in plan.groups] == [{}, {}]
    assert any(note.startswith("one block size for all layers, 128 tokens") for note in plan.notes)
    wide = planned(*entries, block_size=256)
    knobs = [dict(layer.pick(1, 1024, 1).knobs) for layer in wide.groups]
    assert knobs == [{"block_size": 256, "threads": 1}] * 2


def test_a_plan_on_a_size_that_was_not_timed_has_the_defaults_and_says_so() -> None:
    """Knobs that won on other blocks are not asked of these."""
    made = entry(GEMMA, 0, {(CPU, 256): 10.0})
    plan = planned(made, block_size=64)
    assert plan.groups[0].pick(1, 1024, 1).evidence == "default"
    kind = GEMMA.groups[0].kind
    assert f"{kind} layers: timed with 256 tokens in a block, and not with 64" in plan.notes
