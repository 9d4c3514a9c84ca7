"""What smoke runs where: kernels of ours are interpreted, calls into packages are not."""

from __future__ import annotations

import pytest

from attnctl.exits import InputError
from attnctl.ops.catalog import case_of
from attnctl.ops.paged_cases import cases
from attnctl.registry import load
from attnctl.smoke.planning import plan, refuse_untaken
from tests import machine_factory as box

ADAPTERS = ("FLASH_ATTN", "FLASH_ATTN_DIFFKV", "FLASHINFER", "ROCM_ATTN", "ROCM_AITER_FA")


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_is_refused_on_a_processor_with_its_reasons(name: str) -> None:
    """Its package has nothing that Triton's interpreter could run."""
    backend = load().get(name)
    assert backend is not None
    assert backend.kernel == "adapter"
    found = plan(backend, box.cpu(), cases())
    assert not found.runnable
    assert {trial.status for trial in found.refused} == {"unsupported"}
    assert all(any(x.code == "platform" for x in trial.reasons) for trial in found.refused)


def test_flash_attention_runs_what_it_takes_on_hopper() -> None:
    """A chunk of a block and a half is refused there, and a whole one is not."""
    backend = load().get("FLASH_ATTN")
    assert backend is not None
    found = plan(backend, box.cuda(9), cases())
    assert found.level == "device"
    assert len(found.runnable) >= 50
    assert not any("chunk=24" in text for text in found.runnable)


def test_flex_attention_runs_on_a_processor() -> None:
    """All but sinks and caches of one byte."""
    backend = load().get("FLEX_ATTENTION")
    assert backend is not None
    machine = box.cpu(packages=("torch", "triton"))
    found = plan(backend, machine, cases())
    assert (found.device, found.level) == ("cpu", "device")
    assert len(found.runnable) >= 80
    assert all(any(w in x.case for w in ("sinks", "fp8", "int8")) for x in found.refused)


@pytest.mark.parametrize(
    ("name", "page"), [("CPU_ATTN", 16), ("CPU_ATTN", 272), ("TRITON_ATTN", 14)]
)
def test_pages_that_a_backend_has_not_are_refused_for_layers_without_a_cache_too(
    name: str, page: int
) -> None:
    """Their case is computed over pages like any other; what is left at the default is made fit."""
    backend = load().get(name)
    assert backend is not None
    machine = box.cpu(packages=("torch", "triton"))
    wanted = [case_of("paged", {"causal": False, "page": n}) for n in (page, 320)]
    found = plan(backend, machine, wanted)
    usual = page == 16
    assert found.runnable == (("paged(page=32,causal=false)",) if usual else ()) + (
        "paged(page=320,causal=false)",
    )
    reasons = [reason for trial in found.refused for reason in trial.reasons]
    assert [(one.code, one.found) for one in reasons] == (
        [] if usual else [("block_size", str(page))]
    )


def test_a_backend_of_any_page_is_refused_none() -> None:
    """States have no pages, and some backends take every size."""
    for backend in load().backends:
        if not backend.block_units("cpu"):
            found = plan(backend, box.cpu(), [case_of(op, {}) for op in ("paged", "gdn")])
            codes = {reason.code for trial in found.refused for reason in trial.reasons}
            assert "block_size" not in codes


def test_a_case_that_none_of_the_backends_computes_is_refused() -> None:
    """One backend that computes it is enough."""
    registry = load()
    attention, states = registry.get("CPU_ATTN"), registry.get("GDN_ATTN")
    assert attention is not None
    assert states is not None
    gdn, mla = case_of("gdn", {}), case_of("mla", {})
    refuse_untaken([gdn], [attention, states])
    with pytest.raises(InputError, match="none of CPU_ATTN, GDN_ATTN computes mla"):
        refuse_untaken([gdn, mla], [attention, states])


def test_an_indexer_case_is_taken_by_sparse_latent_attention() -> None:
    """The indexer is a part of it, with no backend of its own."""
    backend = load().get("CPU_MLA_SPARSE")
    assert backend is not None
    refuse_untaken([case_of("indexer", {}), case_of("mla_sparse", {})], [backend])
