"""What a program has set for all of torch changes nothing that the library computes.

Serving engines load and run models under a default dtype of bfloat16 and a default device.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import attnctl.kernels.triton.paged  # noqa: F401  kernels that no test has yet hidden the interpreter from
from attnctl.runtime import open_backend
from tests.kernels import perturbed_states
from tests.kernels.cpu.test_build import HostWithEnvironment
from tests.kernels.perturbed_attention import Form, paged_forward, paged_write
from tests.kernels.perturbed_latent import (
    index_logits,
    index_select,
    index_write,
    latent_forward,
    latent_prefill,
    latent_write,
    merged,
    sparse_forward,
)
from tests.kernels.perturbed_states import NAMES
from tests.kernels.perturbing import Call

ATTENTION: dict[str, tuple[Form, ...]] = {
    "CPU_ATTN": (paged_forward, paged_write),
    "FLEX_ATTENTION": (paged_forward, paged_write),
    "CPU_MLA": (latent_forward, latent_prefill, latent_write, merged),
    "CPU_MLA_SPARSE": (sparse_forward, index_write, index_logits, index_select),
}
CALLS = [(name, form) for name, forms in ATTENTION.items() for form in forms]
FORMS = ("c++", "torch")


@pytest.fixture(autouse=True)
def _compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SETTINGS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "a default dtype of bfloat16": lambda: default_dtype(torch.bfloat16),
    "a default dtype of float64": lambda: default_dtype(torch.float64),
    "a default device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference mode": torch.inference_mode,
}


def runtime_of(name: str, form: str, tmp_path: Path) -> Any:
    """A backend of its own; form "torch": on a machine without a compiler."""
    runtime = type(open_backend(name))() if name in ATTENTION else open_backend(name).with_knobs({})
    if form == "torch":
        runtime._host = HostWithEnvironment(
            {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
        )
    return runtime


def check(call: Call) -> None:
    """The call gives what its operation specifies under each setting."""
    for setting in SETTINGS:
        check_under(call, setting)


def check_under(call: Call, setting: str) -> None:
    """With tensors for the results and without."""
    own = [name for name in ("out", "lse") if name in call.arguments()]
    for without in ((), own) if own else ((),):
        given, pristine = (call.arguments() | dict.fromkeys(without) for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with SETTINGS[setting]():
                found = call.run(given)
        for one, other in zip(found, call.exact(pristine), strict=True):
            one, other = one.double(), other.double()
            assert torch.allclose(one, other, atol=1e-4, rtol=1e-4, equal_nan=True), setting


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "call"), CALLS)
def test_attention_computes_the_same_under_any_setting(
    name: str, call: Form, form: str, tmp_path: Path
) -> None:
    """Buffers are of their own dtype and device; float32 products stay float32's."""
    check(call(runtime_of(name, form, tmp_path), False))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", NAMES)
def test_states_advance_the_same_under_any_setting(size: str, form: str, tmp_path: Path) -> None:
    """The same of the backends that keep states."""
    check(perturbed_states.built(runtime_of(NAMES[size], form, tmp_path), size))


def test_a_split_batch_is_the_same_under_any_setting() -> None:
    """What GDN_ATTN makes of lengths and drafts on the host."""
    check(perturbed_states.split(open_backend("GDN_ATTN")))


@pytest.mark.parametrize("call", [x for name, x in CALLS if name in ("CPU_ATTN", "CPU_MLA")])
def test_without_a_compiler_a_result_carries_no_gradient_either(call: Form, tmp_path: Path) -> None:
    """Inputs that want one are computed with, as by the kernels."""
    name = next(name for name, form in CALLS if form is call)
    asked = call(runtime_of(name, "torch", tmp_path), False)
    given = asked.arguments()
    for what in ("query", "key", "value", "latent", "rope", "w_uk", "w_uv", "out_a", "out_b"):
        if what in given:
            given[what].requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not any(one.requires_grad for one in asked.run(given))
