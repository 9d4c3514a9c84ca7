"""Each argument of each call of the library, one at a time, is what a program gives by mistake.

Either it is refused in one sentence or the result is the specification's: never an error from
inside, never memory that is nobody's, never a number that nobody meant.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import attnctl.kernels.triton.paged  # noqa: F401  kernels that no test has yet hidden the interpreter from
from attnctl.exits import InputError
from attnctl.runtime import open_backend
from tests.kernels import perturbed_states
from tests.kernels.cpu.test_build import HostWithEnvironment
from tests.kernels.perturbed_attention import (
    BATCH,
    PAGED,
    Form,
    paged_forward,
    paged_sizes,
    paged_write,
)
from tests.kernels.perturbed_latent import DENSE, SPARSE, WITHOUT_BATCH
from tests.kernels.perturbed_states import NAMES
from tests.kernels.perturbing import Call, fault, field_of, variants

ATTENTION: dict[str, tuple[Form, ...]] = {
    "CPU_ATTN": PAGED,
    "FLEX_ATTENTION": PAGED,
    "CPU_MLA": DENSE,
    "CPU_MLA_SPARSE": SPARSE,
}
CALLS = [(name, form) for name, forms in ATTENTION.items() for form in forms]
TRITON: dict[str, tuple[Form, ...]] = {
    "TRITON_ATTN": PAGED,
    "TRITON_MLA": DENSE,
    "TRITON_MLA_SPARSE": SPARSE,
}
INTERPRETED = [(name, form) for name, forms in TRITON.items() for form in forms]
NOTHING = frozenset({"None", "a word", "a list", "a number", "numpy's", "sparse", "on meta"})
"""Changes that no call computes with, so that the interpreter need not run."""

ADAPTERS = ("FLASH_ATTN", "FLASHINFER", "ROCM_AITER_FA", "ROCM_ATTN", "ROCM_AITER_UNIFIED_ATTN")

STATES = [(size, form) for size in NAMES for form in ("c++", "torch")]


@pytest.fixture(autouse=True)
def _compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def faults(
    call: Call, only: str | tuple[str, ...] = "", kinds: frozenset[str] | None = None
) -> list[str]:
    """What is wrong with the answers to a call, its own first, then those with one change each.

    only: what a field begins with. kinds: names of changes, None for all.
    """
    given, found = call.arguments(), []
    first = call.fields()[0]
    assert not fault(call, first, field_of(call.arguments(), first)), "the call itself is wrong"
    for field in call.fields():
        if field.startswith(only):
            for what, value in variants(field_of(given, field)):
                if kinds is not None and what not in kinds:
                    continue
                wrong = fault(call, field, value)
                found += [f"{field}, {what}: {wrong}"] if wrong else []
    return found


def runtime_of(size: str, form: str, tmp_path: Path) -> Any:
    """A state backend: on a machine without a compiler it computes in torch."""
    runtime = open_backend(NAMES[size]).with_knobs({})
    if form == "torch":
        runtime._opened = None
        runtime._host = HostWithEnvironment(
            {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
        )
    return runtime


@pytest.mark.parametrize(("size", "form"), STATES)
def test_a_changed_argument_of_a_state_call_is_refused_or_right(
    size: str, form: str, tmp_path: Path
) -> None:
    """Inputs, pool, output, and what build_metadata is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not faults(perturbed_states.built(runtime_of(size, form, tmp_path), size))


@pytest.mark.parametrize(("size", "form"), STATES)
def test_a_changed_batch_of_states_is_refused_or_right(
    size: str, form: str, tmp_path: Path
) -> None:
    """A StateMetadata that a program has put together itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = perturbed_states.handed(runtime_of(size, form, tmp_path), size)
        assert not faults(call, "metadata")


@pytest.mark.parametrize("size", NAMES)
def test_a_changed_argument_of_a_further_layer_is_refused_or_right(size: str) -> None:
    """The batch has been looked at then, and the call is short; what is refused is the same."""
    call = perturbed_states.repeated(open_backend(NAMES[size]), size)
    assert not faults(call, ("inputs", "state", "out"))


def test_a_changed_batch_that_is_split_is_refused_or_right() -> None:
    """What GDN_ATTN's build_split is given, and the call with what it makes of it."""
    assert not faults(perturbed_states.split(open_backend("GDN_ATTN")))


@pytest.mark.parametrize(("name", "form"), CALLS)
def test_a_changed_argument_of_attention_is_refused_or_right(name: str, form: Form) -> None:
    """Tensors, parameters, output, and what build_metadata is given."""
    assert not faults(form(open_backend(name), False))


@pytest.mark.parametrize(
    ("name", "form"), [x for x in CALLS if x[1] not in (*WITHOUT_BATCH, paged_sizes)]
)
def test_a_changed_batch_of_attention_is_refused_or_right(name: str, form: Form) -> None:
    """A Metadata that a program has put together itself."""
    assert not faults(form(open_backend(name), True), "metadata")


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_look_at_their_arguments_before_their_library_does(name: str) -> None:
    """A call of one that is not installed names what is wrong; a write needs none."""
    runtime = open_backend(name)
    assert not faults(paged_forward(runtime, False), kinds=NOTHING)
    given = paged_forward(runtime, False).arguments()
    bounds = {what: given.pop(what) for what in ("max_query_len", "max_seq_len")}
    batch = [given.pop(what) for what in BATCH]
    metadata = runtime.build_metadata(*batch, **bounds)
    with pytest.raises(InputError, match=f"^{name}: out must be a tensor; it is 'word'"):
        runtime.forward(**(given | {"metadata": metadata, "out": "word"}))
    assert not faults(paged_write(runtime, False))


@pytest.mark.parametrize(("name", "form"), INTERPRETED)
def test_what_is_no_argument_at_all_never_reaches_triton(
    name: str, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or is an optional one that is left out. Other changes keep the interpreter for long."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not faults(form(open_backend(name), False), kinds=NOTHING)


@pytest.mark.parametrize("size", NAMES)
def test_what_is_no_argument_of_states_never_reaches_triton(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of the state-space kernels."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not faults(perturbed_states.built(open_backend(NAMES[size]), size), kinds=NOTHING)
