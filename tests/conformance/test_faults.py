"""The conformance suite says of each fault what it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from attnctl.conformance import Asked
from attnctl.conformance.declaration import check_features, check_fields, check_import, check_names
from attnctl.conformance.rules import check_findings, check_other_operations, check_select
from attnctl.conformance.running import check_block_sizes, check_cases, check_runtime
from attnctl.findings import Finding, Verdict, met
from attnctl.registry import Backend, Registry, load
from attnctl.requirements import platform
from attnctl.requirements.rule import Rule

PLUGINS = Path(__file__).parent.parent / "plugins"
PLAIN = "paged(queries=1+1,contexts=3+18)"
WINDOW = "paged(queries=4+1,contexts=20+33,window=7)"
PADDED = "paged(queries=1+1,contexts=20+33,padding=2)"


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The faulty distribution is on the path, here and in the worker, as an installed one is."""
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(PLUGINS), before))))
    monkeypatch.syspath_prepend(str(PLUGINS))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "faulty"]:
        del sys.modules[name]


def backend(known: str, /, **changes: Any) -> Backend:
    found = load().get(known)
    assert found is not None
    return msgspec.structs.replace(found, **changes)


def said(check: Callable[..., None], one: Backend, *more: Any) -> str:
    """What a check says of a backend at fault."""
    with pytest.raises(AssertionError) as failure:
        check(one, *more)
    name, _, text = str(failure.value).partition(": ")
    assert name == one.name
    return text


@pytest.mark.parametrize(
    ("name", "case", "says"),
    [
        ("OFF_BY_ONE", WINDOW, "wrong: paged(queries=4+1,contexts=20+33,window=7): "),
        ("LEAVES_NAN", PLAIN, "not written"),
        ("OVERRUNS", PLAIN, "written after the tensor"),
        ("WRITES_PADDING", PADDED, "wrong: paged(queries=1+1,contexts=20+33,padding=2): "),
        ("RAISES", PLAIN, "error: paged(queries=1+1,contexts=3+18): RuntimeError: no such kernel"),
        ("CRASHES", WINDOW, "signal SIGSEGV"),
        ("HANGS", WINDOW, "no answer after 2 s"),
        ("UNSTEADY", PLAIN, "two runs on the same inputs differ"),
    ],
)
def test_each_faulty_kernel_fails_its_cases(name: str, case: str, says: str) -> None:
    """With the case, what is wrong, and the command that repeats it."""
    asked = Asked(backend=backend(name), cases=(case,), timeout_s=2.0 if name == "HANGS" else 60.0)
    with pytest.raises(AssertionError) as failure:
        check_cases(asked)
    text = str(failure.value)
    assert text.startswith(f"{name}: 1 of 1 cases failed on cpu\n")
    assert says in text
    assert f"again: attnctl smoke --backend {name} --case '{case}'" in text


def test_noise_on_standard_output_harms_nothing() -> None:
    """The answers go another way."""
    check_cases(Asked(backend=backend("PRINTS"), cases=(PLAIN,)))


def test_the_specification_passes_every_check() -> None:
    """Nothing but a fault is found at fault."""
    one = backend("SOUND")
    registry = load()
    check_cases(Asked(backend=one, cases=(PLAIN, WINDOW, PADDED)))
    for check in (check_fields, check_runtime, check_block_sizes):
        check(one, registry)
    check_names(one)
    check_features(one)
    check_import(one)
    # it says nothing of platforms, so that kernels planted beside it compile for any
    placed = msgspec.structs.replace(one, rules=(platform("cpu"), *one.rules))
    for check in (check_findings, check_other_operations, check_select):
        check(placed, registry)


def test_results_that_differ_between_two_runs_pass_where_that_is_declared() -> None:
    """DETERMINISTIC = False in the author's module."""
    check_cases(Asked(backend=backend("UNSTEADY"), cases=(PLAIN,), deterministic=False))


def test_a_suite_in_which_nothing_ran_is_red() -> None:
    """The reasons say why."""
    with pytest.raises(AssertionError, match=r"none of 1 cases runs on this machine: .* wanted"):
        check_cases(Asked(backend=backend("SOUND"), cases=("paged(kv_cache_dtype=fp8)",)))


def _rule(answer: Any) -> Rule:
    def check(subject: Any) -> Any:
        return answer(subject) if callable(answer) else answer

    return Rule("odd", "layer", check)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda subject: 1 / 0, "rule odd on .* raised ZeroDivisionError"),
        ("no", "rule odd on .* gave str, wanted a Finding or None"),
        (met("odd", "", "x"), "its finding's wanted is '', wanted a few words"),
        (met("odd", "x", " "), "its finding's found is ' ', wanted a few words"),
        (met("odd", "x", 5), "its finding's found is 5"),
        (Finding("odd", Verdict.UNMET, "x", "y", fix=None), "fix must be text"),
        (Finding("odd", "unmet", "x", "y"), "wanted a code and a Verdict"),
    ],
)
def test_a_rule_that_does_not_answer_in_findings_is_named(answer: Any, says: str) -> None:
    """By its code, the machine, and what it gave."""
    sound = backend("SOUND")
    one = msgspec.structs.replace(sound, rules=(*sound.rules, _rule(answer)))
    with pytest.raises(AssertionError, match=says):
        check_findings(one, Registry((one,)))


def _without(code: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in backend("SOUND").rules if rule.code != code)


def test_a_declaration_with_a_gap_is_told_what_to_add() -> None:
    """A feature without an answer, an operation that is not refused, an order without a place."""
    one = backend("SOUND", rules=_without("sinks"))
    assert "do not answer once for sinks: add *features(...)" in said(check_features, one)
    one = backend("SOUND", rules=_without("operation"))
    found = said(check_other_operations, one, Registry((one,)))
    assert 'which are not in its ops (paged): add operation("paged")' in found
    one = backend("SOUND", ranks=())
    assert "stands in no order there: add Rank(platform=" in said(check_select, one, load())
    one = backend("SOUND", rules=(_rule(Finding("odd", Verdict.UNMET, "a", "b")),))
    assert "take no layer of its operations" in said(check_select, one, load())


def test_fields_and_names_are_checked() -> None:
    """What no command would get to see, since the registry refuses it, and where it stands."""
    assert "TRITON_ATTN is taken" in said(
        check_fields, backend("SOUND", name="TRITON_ATTN"), load()
    )
    assert "summary is ''" in said(check_fields, backend("SOUND", summary=""), load())
    wrong = said(check_names, backend("SOUND", name="OTHER"))
    assert wrong == "declare it in a folder other, found module 'sound'"
    single = backend("SOUND", name="REFERENCE", module="faulty.reference")
    assert "must be a folder with __init__.py" in said(check_names, single)


def test_a_declaration_that_imports_torch_is_told_where_to_move_it() -> None:
    """The module is read where torch cannot be imported."""
    one = backend("SOUND", module="faulty.sound.kernel")
    found = said(check_import, one)
    assert "its declaration must load without torch, triton, numpy, transformers" in found
    assert found.endswith("move such imports to kernel.py")


RUNTIMES = {
    "": "has no attribute 'RUNTIME'; {module}.kernel must hold RUNTIME",
    "import no_such_thing": "ModuleNotFoundError",
    "RUNTIME = object()": "RUNTIME has no method ",
    "class R(Reference):\n    def forward(self, query): ...\nRUNTIME = R()": (
        "RUNTIME.forward cannot be called as PagedRuntime.forward is"
    ),
    "class R(Reference):\n    def get_name(self): return 'X'\nRUNTIME = R()": (
        "RUNTIME.get_name() gives 'X', its declaration says 'SOUND'"
    ),
}


@pytest.mark.parametrize("body", RUNTIMES)
def test_a_runtime_that_is_none_is_told_what_it_lacks(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing object, a missing method, one of another signature, another backend's name."""
    name = f"odd_{list(RUNTIMES).index(body)}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "kernel.py").write_text(f"from faulty.reference import Reference\n{body}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    one = backend("SOUND", module=name)
    assert RUNTIMES[body].format(module=name) in said(check_runtime, one, Registry((one,)))


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("(n, p, h, 2 * d)", "cache_shape takes pages of 0"),
        ("1 // 0", "cache_shape refuses pages of 16, which are declared: ZeroDivisionError"),
        ("(n, 1 // p, h, 2 * d)", "pages of 0 raises ZeroDivisionError, wanted an attnctl.exits"),
        ("[n, p]", "gives [4, 16], wanted a tuple"),
    ],
)
def test_block_sizes_that_are_not_those_declared_are_told(
    shape: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is declared must be taken, and what cannot be refused with a sentence."""
    name = f"sized_{abs(hash(shape))}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "kernel.py").write_text(
        "from faulty.reference import Reference\nclass R(Reference):\n"
        f"    def cache_shape(self, n, p, h, d, dv=None):\n        return {shape}\nRUNTIME = R()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    one = backend("SOUND", module=name)
    assert says in said(check_block_sizes, one, Registry((one,)))
