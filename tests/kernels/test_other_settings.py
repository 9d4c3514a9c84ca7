"""The settings that a tune tries of latent attention, of states and of the processor's kernel."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.exits import InputError
from attnctl.kernels.states.knobs import CHUNKS, known, of_chunks, state_knobs
from attnctl.kernels.triton.states import mamba1_scan
from attnctl.kernels.triton.states.launch import Walk
from attnctl.layer import Layer, Options, layer_of
from attnctl.model import read_model
from attnctl.model.spec import ModelSpec
from attnctl.runtime import open_backend
from attnctl.tune.settings import Limits, Setting, Work, tuned
from tests.commands.running import MODELS
from tests.layer_factory import BY_OP

H200 = Limits(arch="sm_90", units=132, shared_memory_bytes=232448)
A100 = Limits(arch="sm_80", units=108, shared_memory_bytes=166912)
CPU = Limits(arch="cpu", units=4, threads=4)


def layer(op: str) -> Layer:
    group = BY_OP[op]
    return layer_of(ModelSpec(model_type="x", groups=(group,), dtype="bfloat16"), group, Options())


def work(of: Layer, phase: str = "decode", query: int = 1, page: int = 64) -> Work:
    return Work(layer=of, phase=phase, batch=4, context=4096, query=query, page=page)


def settings(backend: str, one: Work, limits: Limits) -> tuple[Setting, ...]:
    found: tuple[Setting, ...] = open_backend(backend).settings(one, limits)
    return found


def distinct(found: tuple[Setting, ...]) -> bool:
    texts = [(one.kernel, tuple(sorted(one.knobs.items()))) for one in found]
    return len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("backend", "op"), [("TRITON_MLA", "mla"), ("TRITON_MLA_SPARSE", "mla_sparse")]
)
@pytest.mark.parametrize("limits", [H200, A100])
def test_latent_attention_has_forty_settings_that_it_takes(
    backend: str, op: str, limits: Limits
) -> None:
    """The default first, none twice, each accepted; on Hopper the portable kernel is a rival."""
    found = settings(backend, work(layer(op)), limits)
    assert len(found) >= 40
    assert found[0] == Setting()
    assert distinct(found)
    assert ("portable" in {one.kernel for one in found}) is (limits is H200)
    for one in found:
        tuned(open_backend(backend), one.knobs, one.kernel)


def test_the_uncompressed_form_has_its_default_alone() -> None:
    """Its kernel takes no knobs."""
    assert settings("TRITON_MLA", work(layer("mla"), "prefill", 128), H200) == (Setting(),)


@pytest.mark.parametrize(
    ("model", "backend"),
    [
        ("qwen3-next-80b-a3b", "GDN_ATTN"),
        ("kimi-linear-48b-a3b", "GDN_ATTN"),
        ("codestral-mamba-7b", "MAMBA2_ATTN"),
        ("jamba-1.5-mini", "MAMBA1_ATTN"),
        ("lfm2-1.2b", "SHORT_CONV_ATTN"),
        ("minimax-text-01", "LINEAR_ATTN"),
    ],
)
@pytest.mark.parametrize("query", [1, 512])
def test_every_state_backend_has_settings_that_it_takes(
    model: str, backend: str, query: int
) -> None:
    """The default first, none twice, each accepted; a processor has the default alone."""
    spec = read_model(str(MODELS / f"{model}.json"))
    op = backend.removesuffix("_ATTN").lower()
    (of, *_) = (one for one in (layer_of(spec, g, Options()) for g in spec.groups) if one.op == op)
    one = work(of, "decode" if query == 1 else "prefill", query, page=0)
    found = settings(backend, one, H200)
    assert len(found) >= (18 if query == 1 else 35)
    assert found[0] == Setting()
    assert distinct(found)
    for setting in found:
        tuned(open_backend(backend), setting.knobs, setting.kernel)
    assert settings(backend, one, CPU) == (Setting(),)


@pytest.mark.parametrize(
    ("op", "names"),
    [
        ("gdn", Walk.__struct_fields__),
        ("mamba1", tuple(mamba1_scan.KNOBS)),
        ("mamba2", Walk.__struct_fields__),
        ("linear", Walk.__struct_fields__),
    ],
)
def test_the_names_are_those_of_the_kernels(op: str, names: tuple[str, ...]) -> None:
    """A name that the kernels do not know would change nothing, or raise."""
    changes = {f"chunks.{name}": value for name, value in CHUNKS[op].items()}
    assert set(of_chunks(changes)) == set(names)
    assert known(op).keys() == {"tile", "warps", *changes}


@pytest.mark.parametrize(
    ("knobs", "kernel", "says"),
    [
        ({"tile": 3}, "", "must be a power of two"),
        ({"chunks.rows": 0}, "", "must be a power of two"),
        ({"chunks.row": 1}, "", "Did you mean chunks.rows"),
        ({}, "fa3", "no kernel 'fa3'"),
    ],
)
def test_a_state_knob_that_makes_no_sense_is_refused(
    knobs: dict[str, Any], kernel: str, says: str
) -> None:
    """As a profile edited by hand would have it."""
    with pytest.raises(InputError) as caught:
        state_knobs("GDN_ATTN", "gdn", knobs, kernel)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"threads": 0}, "must be from 1"),
        ({"direct_rows": 17}, "must be from 0 to 16"),
        ({"block_rows": 5}, "must be from 12"),
        ({"thread": 1}, "Did you mean threads"),
    ],
)
def test_a_processors_knob_that_makes_no_sense_is_refused(knobs: dict[str, Any], says: str) -> None:
    """It would reach a kernel in C++ that trusts it."""
    with pytest.raises(InputError) as caught:
        open_backend("CPU_ATTN").with_knobs(knobs)
    assert says in str(caught.value)


def test_the_processors_kernel_is_tried_with_fewer_threads_other_cuts_and_blocks() -> None:
    """Sizes of blocks unless the user fixed one."""
    found = settings("CPU_ATTN", work(layer("paged"), page=32), CPU)
    assert found[0] == Setting()
    assert distinct(found)
    values = {name: {one.knobs.get(name) for one in found} for one in found for name in one.knobs}
    assert values["threads"] == {None, 1, 2}
    assert values["block_size"] == {None, 64, 128, 256}
    assert values["parts"] >= {None, 1, 2, 8}
    group = BY_OP["paged"]
    spec = ModelSpec(model_type="x", groups=(group,), dtype="bfloat16")
    fixed = layer_of(spec, group, Options(block_size=32))
    assert not any("block_size" in s.knobs for s in settings("CPU_ATTN", work(fixed, page=32), CPU))
