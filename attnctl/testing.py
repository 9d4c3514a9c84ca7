"""The conformance suite for authors of plug-in backends: pytest tests by one line of import.

    from attnctl.testing import *

in a test module of the plug-in tests every backend that an installed distribution offers. Names
that the module sets narrow it:

    BACKENDS = ("MY_ATTN",)      only these, built-in ones too
    CASES = ("paged(window=7)",) only these cases, as smoke prints them
    QUICK = True                 each phase and each kind of option once
    TIMEOUT_S = 60.0             limit of one case
    DETERMINISTIC = False        results may differ between two runs, as those of atomic sums do

pytest is not imported here: it calls pytest_generate_tests, and the tests raise AssertionError.
"""

from __future__ import annotations

from typing import Any

from attnctl.conformance import Asked
from attnctl.conformance.declaration import check_features, check_fields, check_import, check_names
from attnctl.conformance.rules import check_findings, check_other_operations, check_select
from attnctl.conformance.running import check_block_sizes, check_cases, check_runtime
from attnctl.registry import BUILT_IN, GROUP, Backend, Registry, load

__all__ = [
    "pytest_generate_tests",
    "test_every_case_that_its_rules_take_passes",
    "test_every_rule_answers_in_findings",
    "test_it_is_declared_under_its_own_name",
    "test_it_loads",
    "test_its_block_sizes_are_those_that_it_takes",
    "test_its_declaration_answers_for_every_feature",
    "test_its_declaration_is_well_made",
    "test_its_declaration_loads_without_torch",
    "test_its_rules_refuse_other_operations",
    "test_its_runtime_follows_the_protocol",
    "test_select_answers_on_every_machine",
]


def pytest_generate_tests(metafunc: Any) -> None:
    """One test per backend; those that do not load have test_it_loads alone, which fails."""
    names = set(metafunc.fixturenames)
    if not names & {"attnctl_asked", "attnctl_loading"}:
        return
    registry = load()
    wanted = getattr(metafunc.module, "BACKENDS", None)
    if "attnctl_loading" in names:
        found = loading(registry, wanted)
        metafunc.parametrize("attnctl_loading", list(found.values()), ids=list(found))
    else:
        asked = [_asked(one, metafunc.module) for one in chosen(registry, wanted)]
        metafunc.parametrize("attnctl_asked", asked, ids=[one.backend.name for one in asked])


def chosen(registry: Registry, wanted: Any) -> tuple[Backend, ...]:
    """The backends of these names, or of every plug-in."""
    if wanted is None:
        return tuple(one for one in registry.backends if one.origin != BUILT_IN)
    return tuple(one for one in registry.backends if one.name in wanted)


def loading(registry: Registry, wanted: Any) -> dict[str, str]:
    """Backend, or entry point that does not load -> what is wrong with it, "" where nothing is."""
    broken = {one.name: f"{one.name} of {one.origin}: {one.error}" for one in registry.broken}
    there = {one.name: "" for one in chosen(registry, wanted)}
    if wanted is None:
        return {**there, **broken} or {
            "none": f'no installed distribution has an entry point of the group "{GROUP}"'
        }
    said = "; ".join(broken.values()) or "it is not in the registry (attnctl list)"
    return {name: there.get(name, f"{name} did not load: {said}") for name in wanted}


def test_it_loads(attnctl_loading: str) -> None:
    """The entry point leads to a declaration that the registry takes."""
    assert not attnctl_loading, attnctl_loading


def test_its_declaration_is_well_made(attnctl_asked: Asked) -> None:
    """Every field holds what it should."""
    check_fields(attnctl_asked.backend, load())


def test_it_is_declared_under_its_own_name(attnctl_asked: Asked) -> None:
    """In a folder of its name in lower case."""
    check_names(attnctl_asked.backend)


def test_its_declaration_answers_for_every_feature(attnctl_asked: Asked) -> None:
    """Yes, no or a condition for each."""
    check_features(attnctl_asked.backend)


def test_its_declaration_loads_without_torch(attnctl_asked: Asked) -> None:
    """Nor Triton, NumPy or transformers."""
    check_import(attnctl_asked.backend)


def test_every_rule_answers_in_findings(attnctl_asked: Asked) -> None:
    """On every bundled machine, about every layer: what was wanted and what was found."""
    check_findings(attnctl_asked.backend, load())


def test_its_rules_refuse_other_operations(attnctl_asked: Asked) -> None:
    """A layer that it does not compute is never taken."""
    check_other_operations(attnctl_asked.backend, load())


def test_select_answers_on_every_machine(attnctl_asked: Asked) -> None:
    """It is a candidate everywhere, eligible somewhere, and has a place where it is."""
    check_select(attnctl_asked.backend, load())


def test_its_runtime_follows_the_protocol(attnctl_asked: Asked) -> None:
    """RUNTIME has every method of its operation's protocol."""
    if attnctl_asked.backend.kernel != "planned":
        check_runtime(attnctl_asked.backend, load())


def test_its_block_sizes_are_those_that_it_takes(attnctl_asked: Asked) -> None:
    """cache_shape takes what is declared, and refuses the rest with InputError."""
    if attnctl_asked.backend.kernel != "planned":
        check_block_sizes(attnctl_asked.backend, load())


def test_every_case_that_its_rules_take_passes(attnctl_asked: Asked) -> None:
    """Against the specification of its operation, as `attnctl smoke` runs them."""
    if attnctl_asked.backend.kernel != "planned":
        check_cases(attnctl_asked)


def _asked(backend: Backend, module: Any) -> Asked:
    return Asked(
        backend=backend,
        cases=tuple(getattr(module, "CASES", ())),
        quick=bool(getattr(module, "QUICK", False)),
        timeout_s=float(getattr(module, "TIMEOUT_S", 60.0)),
        deterministic=bool(getattr(module, "DETERMINISTIC", True)),
    )
