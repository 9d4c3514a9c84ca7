"""What is asked of plug-ins holds for every backend that is built in."""

from __future__ import annotations

import pytest

from attnctl.conformance.declaration import check_features, check_fields, check_names
from attnctl.conformance.rules import check_findings, check_other_operations, check_select
from attnctl.conformance.running import check_block_sizes, check_runtime
from attnctl.registry import Backend, load

REGISTRY = load()
BUILT_IN = tuple(one for one in REGISTRY.backends if one.origin == "built-in")


def of(name: str) -> Backend:
    found = REGISTRY.get(name)
    assert found is not None
    return found


@pytest.mark.parametrize("backend", BUILT_IN, ids=lambda backend: backend.name)
def test_its_declaration_and_runtime_conform(backend: Backend) -> None:
    """Paged, latent, sparse and recurrent ones, adapters without their library among them."""
    check_names(backend)
    check_features(backend)
    for check in (check_fields, check_runtime, check_block_sizes):
        check(backend, REGISTRY)


@pytest.mark.parametrize("name", ["FLASHINFER", "GDN_ATTN", "ROCM_AITER_MLA_SPARSE"])
def test_its_rules_conform(name: str) -> None:
    """One of each kind: every bundled machine, every layer that a case demands."""
    for check in (check_findings, check_other_operations, check_select):
        check(of(name), REGISTRY)
