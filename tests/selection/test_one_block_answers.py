"""One block size for all layers: the answer of `select` on it, and a plan laid out in it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import attnctl
from attnctl.exits import InputError
from attnctl.layer import Options
from attnctl.machines import load as load_machine
from attnctl.machines.assumed import assume
from attnctl.model import read_model
from attnctl.profile.values import Entry, Rejected
from attnctl.registry import Backend, Registry, load
from attnctl.render.block_sizes import said
from attnctl.requirements import block_size
from attnctl.select import select_model
from attnctl.selection.answer import answer
from attnctl.selection.one_block import settled
from tests.commands.running import MODELS
from tests.profile.factory import machine
from tests.selection.sized_timings import (
    FLASH,
    FULL,
    GPT_OSS,
    H200,
    TRITON,
    WINDOWED,
    costs,
    entry,
    profile,
    timing,
)

GEMMA = read_model(MODELS / "gemma-2-9b.json")


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
