"""Profiles checked against themselves, against kernels and machines, and against one another."""

from __future__ import annotations

import msgspec

from attnctl.layer import Layer
from attnctl.profile.canonical import canonical, encode
from attnctl.profile.checks import Check, check
from attnctl.profile.diff import difference
from attnctl.profile.document import parse, shape_of
from attnctl.profile.keys import Key
from attnctl.profile.layers import layer_of_shape
from attnctl.profile.rederive import Verification, rederive
from attnctl.profile.values import Profile
from attnctl.registry import load
from attnctl.select import eligible_names, select
from tests.commands.running import MODELS
from tests.profile.factory import GRID, layers, machine, profile

EVERY = sorted(path.stem for path in MODELS.glob("*.json"))


def checked(document: Profile, on: str = "h100") -> Check:
    box = machine(on)
    return check("p.json", document, load(), box, box.gpus[0])


def verified(document: Profile, on: str = "h100") -> Verification:
    return rederive("p.json", document, load(), machine(on))


def altered(document: Profile, **changes: object) -> Profile:
    """The document with these fields of its first entry."""
    first, *rest = document.entries
    return msgspec.structs.replace(
        document, entries=(msgspec.structs.replace(first, **changes), *rest)
    )


def test_what_was_written_holds() -> None:
    """On its own device every point is used; on another none, which is not its fault."""
    document = canonical(profile("llama-3.1-8b", "gpt-oss-20b"))
    found = checked(document)
    assert (found.exit_code, found.status, found.used, found.skipped) == (0, "valid", 54, 0)
    other = checked(document, on="h200")
    assert (other.exit_code, other.status, other.used, other.skipped) == (0, "foreign", 0, 54)


def test_a_pick_that_the_timings_do_not_give_is_a_problem() -> None:
    """A document edited by hand contradicts itself."""
    document = canonical(profile())
    text = encode(document).decode().replace('"pick": "FLASH_ATTN"', '"pick": "FLASHINFER"', 1)
    found = checked(parse(text.encode(), "p.json"))
    assert found.exit_code == 1
    (problem,) = found.problems
    assert problem.endswith("the pick is FLASHINFER, and the timings give FLASH_ATTN")


def test_a_gain_that_the_timings_do_not_give_is_a_problem() -> None:
    """The figure is worked out again."""
    found = checked(altered(canonical(profile()), gain=7.0))
    assert found.exit_code == 1
    assert "the gain is 7.0" in found.problems[0]


def test_only_the_entries_of_a_changed_kernel_are_dead() -> None:
    """Each is named, and the others' points are used."""
    document = canonical(profile("llama-3.1-8b", "deepseek-v3"))
    mla, paged = document.entries
    dead = altered(document, kernels={**mla.kernels, "TRITON_MLA": "other"})
    found = checked(dead)
    assert found.exit_code == 1
    (problem,) = found.problems
    assert problem.startswith(f"TRITON_MLA's timings of {mla.shape} are dead")
    assert str(paged.shape) not in problem


def test_a_broken_entry_is_a_problem_and_the_rest_is_used() -> None:
    """One bad entry is a miss."""
    text = encode(profile("llama-3.1-8b", "gpt-oss-20b")).decode()
    text = text.replace('"phase":"decode"', '"phase":"decoding"', 1)
    text = text.replace('"phase": "decode"', '"phase": "decoding"', 1)
    found = checked(parse(text.encode(), "p.json"))
    assert found.exit_code == 1
    assert len(found.problems) == 1
    assert "left out" in found.problems[0]
    assert found.used == 36


def test_a_backend_that_nobody_has_here_is_a_note() -> None:
    """A plug-in's timings are passed over where it is not installed."""
    text = encode(profile()).decode().replace("FLEX_ATTENTION", "THEIR_ATTN")
    found = checked(parse(text.encode(), "p.json"))
    assert found.notes == (
        "THEIR_ATTN: no backend of that name is here; its timings are passed over",
    )


def test_every_pick_comes_out_again_on_the_machine_it_was_made_on() -> None:
    """Paged, windowed, latent and state layers, without a GPU."""
    models = ("gpt-oss-20b", "deepseek-v3.2", "qwen3-next-80b-a3b", "mimo-v2-flash")
    found = verified(canonical(profile(*models)))
    assert [one.differences for one in found.shapes] == [()] * len(found.shapes)
    assert found.exit_code == 0
    assert len(found.shapes) == 7


def test_another_machine_gives_other_picks_and_says_why() -> None:
    """What is not eligible there is named, beside that the profile is foreign."""
    found = verified(canonical(profile()), on="t4")
    assert (found.exit_code, found.status) == (1, "foreign")
    (shape,) = found.shapes
    assert shape.differences[0].startswith("not eligible on this machine: ")


def test_what_was_not_eligible_then_takes_no_part() -> None:
    """A profile made without FlashAttention holds where it is installed, and says what is new."""
    document = profile()
    (entry,) = document.entries
    order = tuple(name for name in entry.order if name != "FLASH_ATTN")
    points = tuple(
        msgspec.structs.replace(p, timings=tuple(t for t in p.timings if t.backend in order))
        for p in entry.points
    )
    found = verified(canonical(altered(document, order=order, points=points)))
    assert found.exit_code == 0
    (shape,) = found.shapes
    assert (shape.agreed, shape.untimed) == (len(GRID), ("FLASH_ATTN",))


def test_another_default_order_is_a_difference() -> None:
    """Ties would go elsewhere."""
    document = canonical(profile())
    turned = altered(document, order=document.entries[0].order[::-1])
    found = verified(canonical(turned))
    assert found.exit_code == 1
    assert "the default order was FLEX_ATTENTION" in found.shapes[0].differences[0]


def kinds(layer: Layer) -> tuple[str | None, tuple[str, ...]]:
    return layer.op, layer.features


def test_the_layer_of_a_shape_makes_the_same_demands() -> None:
    """Of every model under tests/models: the same shape, states included, and the same eligible.

    A shape does not tell the decoder of a model of two stacks; `verify --model` does.
    """
    registry, boxes = load(), [machine(name) for name in ("h100", "mi300x", "t4")]
    for model in EVERY:
        for layer in layers(model):
            if (layer.group.kind, layer.group.stack) == ("full", "decoder"):
                continue
            shape = shape_of(layer)
            again = layer_of_shape(shape)
            assert kinds(again) == kinds(layer), model
            assert shape_of(again) == shape, model
            for box in boxes:
                here, there = (select(one, box, registry) for one in (layer, again))
                assert eligible_names(there) == eligible_names(here), f"{model} on {box.name}"


def test_two_tunes_that_pick_the_same_do_not_differ() -> None:
    """Other times are no difference."""
    one = profile()
    found = difference(
        one,
        profile(
            measured="2026-11-21",
            faster=dict.fromkeys(
                ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"), 1.1
            ),
        ),
    )
    assert (found.exit_code, found.points, found.equal) == (0, (), len(GRID))


def test_another_pick_is_a_difference_with_its_cost() -> None:
    """The first's pick as the second timed it, against the second's own."""
    one, other = profile(grid=GRID[3:4]), profile(grid=GRID[3:4], faster={"TRITON_ATTN": 0.5})
    found = difference(one, other)
    assert found.exit_code == 1
    (changed,) = found.points
    assert changed.point == "decode B=8, S=1k"
    assert changed.other is not None
    assert changed.other.startswith("TRITON_ATTN decode.warps=8")
    assert changed.ratio is not None
    assert changed.ratio > 1.5


def test_points_of_one_alone_and_other_keys_are_differences() -> None:
    """Each is named."""
    one = profile(grid=GRID[:3])
    other = msgspec.structs.replace(
        profile(grid=GRID[:2]), key=Key(vendor="nvidia", arch="sm_90", unit_count=78)
    )
    found = difference(one, other)
    assert [field.name for field in found.fields] == ["key.pci_id", "key.unit_count"]
    assert [(p.point, p.other) for p in found.points] == [("decode B=1, S=64k", None)]
