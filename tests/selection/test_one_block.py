"""One block size for all layers: what each costs by the timings."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.layer import Options
from attnctl.model import read_model
from attnctl.profile.values import Entry
from attnctl.render.block_sizes import said
from attnctl.selection.timed import BlockCost, OneBlock
from tests.commands.running import MODELS
from tests.profile.factory import machine
from tests.selection.sized_timings import (
    FLASH,
    FULL,
    GPT_OSS,
    TRITON,
    WINDOWED,
    costs,
    entry,
    profile,
)


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


def test_states_have_no_say() -> None:
    """Layers that keep states by slot stand beside; a size for the others is found all the same."""
    hybrid = read_model(MODELS / "qwen3-next-80b-a3b.json")
    states = next(group for group in hybrid.groups if group.is_ssm)
    spec = msgspec.structs.replace(GPT_OSS, groups=(states, *GPT_OSS.groups))
    found = costs(profile(entry(GPT_OSS, 0, WINDOWED), entry(GPT_OSS, 1, FULL)), spec)
    assert found is not None
    assert [one.ratio for one in found.sizes] == pytest.approx([140 / 110, 113 / 110])
    assert costs(None, msgspec.structs.replace(spec, groups=(states,))) is None
