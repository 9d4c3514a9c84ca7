"""FlashAttention 2's own package pages caches by 256 tokens, vLLM's build of it by 16."""

from __future__ import annotations

import pytest

from attnctl.exits import InputError
from attnctl.layer import Layer, Options, layer_of
from attnctl.machine import Machine
from attnctl.machines.assumed import Assumption
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.ops.paged_cases import cases
from attnctl.plans import opening as plans
from attnctl.registry import load
from attnctl.requirements import flash_block_multiple
from attnctl.select import select, subject_of
from attnctl.selection.answer import answer
from attnctl.smoke.planning import plan
from tests import machine_factory as box
from tests.layer_factory import group

REGISTRY = load()
OWN = ("torch", "triton", "flash_attn")
ALONE = box.cuda(8, packages=OWN)


def layer(layers: LayerGroup | None = None, **options: object) -> Layer:
    layers = layers or group()
    spec = ModelSpec(model_type="m", groups=(layers,), dtype="bfloat16")
    return layer_of(spec, layers, Options(**options))


@pytest.mark.parametrize(
    ("machine", "layers", "multiple"),
    [
        (ALONE, group(), 256),
        (box.cuda(8, packages=(*OWN, "vllm")), group(), None),
        (box.cuda(9, packages=OWN), group(), 256),
        (box.cuda(9, packages=(*OWN, "flash_attn_3")), group(), None),
        (box.cuda(9, packages=(*OWN, "flash_attn_3")), group(alibi=True), 256),
        (box.cuda(10, packages=(*OWN, "flash_attn_4")), group(), None),
        (box.cuda(10, packages=(*OWN, "flash_attn_4")), group(head_size=256), 256),
        (box.xpu(), group(), None),
        (box.cpu(), group(), None),
    ],
)
def test_whose_pages_have_256_tokens(
    machine: Machine, layers: LayerGroup, multiple: int | None
) -> None:
    """By the version that serves the layer on this device, and by the package that brings it."""
    assert flash_block_multiple(subject_of(machine, layer(layers))) == multiple


def test_the_pick_has_pages_that_the_package_takes() -> None:
    """The field's 16 would be refused in the first call."""
    pick = select(layer(), ALONE, REGISTRY).pick
    assert pick is not None
    assert (pick.name, pick.block_size) == ("FLASH_ATTN", 256)
    carried = select(layer(), box.cuda(8, packages=(*OWN, "vllm")), REGISTRY).pick
    assert carried is not None
    assert (carried.name, carried.block_size) == ("FLASH_ATTN", 16)


@pytest.mark.parametrize(("size", "name"), [(16, "TRITON_ATTN"), (512, "FLASH_ATTN")])
def test_a_size_of_the_users_decides_who_is_eligible(size: int, name: str) -> None:
    """With another one it is rejected, and the next of the order is picked."""
    decision = select(layer(block_size=size), ALONE, REGISTRY)
    assert decision.pick is not None
    assert (decision.pick.name, decision.pick.block_size) == (name, size)
    if name != "FLASH_ATTN":
        (flash,) = (one for one in decision.candidates if one.name == "FLASH_ATTN")
        assert [one.wanted for one in flash.findings if not one.met] == ["a multiple of 256"]


def test_smoke_gives_its_cases_such_pages() -> None:
    """All that name no page; one that names another is refused."""
    backend = REGISTRY.get("FLASH_ATTN")
    assert backend is not None
    found = plan(backend, ALONE, cases())
    assert len(found.runnable) >= 50
    assert all("page=256" in text for text in found.runnable)
    assert not any("page=" in text for text in plan(backend, box.cuda(9), cases()).runnable[:5])


def test_a_hybrid_s_page_is_raised_by_what_the_package_takes() -> None:
    """The page that holds a state is a whole number of its blocks."""
    from attnctl.model import read_model

    spec = read_model("tests/models/jamba-1.5-mini.json")
    report = answer(spec, Assumption(ALONE), REGISTRY, Options(backend=(("full", "FLASH_ATTN"),)))
    assert report.cache is not None
    assert report.cache.block_size is not None
    assert report.cache.block_size % 256 == 0


def test_a_plan_lays_its_cache_out_in_such_pages() -> None:
    """Also for layers of an encoder, which keep none and are called with pages all the same."""
    for layers in (group(), group("encoder_self")):
        spec = ModelSpec(model_type="m", groups=(layers,), dtype="bfloat16")
        options = Options(backend=(("*", "FLASH_ATTN"),))
        found = plans.plan(spec, ALONE, profile="none", options=options)
        assert found[0].block_size == 256
    spec = ModelSpec(model_type="m", groups=(group(),), dtype="bfloat16")
    named = Options(backend=(("*", "FLASH_ATTN"),), block_size=16)
    with pytest.raises(InputError, match=r"FLASH_ATTN was requested .* cannot serve"):
        plans.plan(spec, ALONE, options=named, profile="none")


def test_a_chunk_that_such_pages_do_not_divide_is_another_backend_s() -> None:
    """Each chunk is a sequence of its own to FlashAttention, and begins with a page."""
    for chunk, name in ((8192, "FLASH_ATTN"), (128, "TRITON_ATTN")):
        pick = select(layer(group("chunked", chunk=chunk)), ALONE, REGISTRY).pick
        assert pick is not None
        assert pick.name == name
    carried = box.cuda(8, packages=(*OWN, "vllm"))
    pick = select(layer(group("chunked", chunk=128)), carried, REGISTRY).pick
    assert pick is not None
    assert pick.name == "FLASH_ATTN"
