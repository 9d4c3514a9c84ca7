"""Plans and runs smoke: which cases a backend is tried on here, at which level, with what result.

Cases come from the operations; a backend's own rules say which of them it takes. Without a GPU the
Triton backends run in Triton's interpreter, where only rules about the layer are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from attnctl.exits import Exit, InputError
from attnctl.findings import Finding, Verdict
from attnctl.machine import Machine, Vendor
from attnctl.ops.case import Case
from attnctl.ops.catalog import OPERATIONS, case_of, layer_for
from attnctl.registry import Backend, Registry
from attnctl.requirements import Subject, package
from attnctl.run import try_cases
from attnctl.select import DEFAULT_BLOCK, subject_of
from attnctl.trials import BackendTrials, Level, SmokeReport, Trial

# what the interpreter needs of the machine, whatever its devices are
INTERPRETER = (package("torch"), package("triton"))

Runner = Callable[[str, str, Iterable[str], float], Iterator[Trial]]


class Plan(msgspec.Struct, frozen=True):
    """What one backend is tried on: runnable cases, and those that its rules refuse."""

    backend: str
    device: str
    level: Level
    runnable: tuple[str, ...]
    refused: tuple[Trial, ...]


def plan(backend: Backend, machine: Machine, wanted: Iterable[Case]) -> Plan:
    """Which of these cases the backend takes on this machine, and where it would run them."""
    device, level = _where(backend, machine)
    seen = _without_gpus(machine) if device == "cpu" else machine
    runnable, refused = [], []
    for asked in wanted:
        if not takes(backend, asked):
            continue
        one = _paged_for(asked, backend, seen.platform)
        subject = subject_of(seen, layer_for(one))
        reasons = tuple(_reasons(backend, subject, level))
        if reasons:
            status = "unknown" if _only_unknown(reasons) else "unsupported"
            refused.append(Trial(one.text, status, reasons=reasons))  # type: ignore[arg-type]
        else:
            runnable.append(one.text)
    return Plan(backend.name, device, level, tuple(runnable), tuple(refused))


def thinned(plan: Plan) -> Plan:
    """Every fourth case that the backend runs, one at least where it runs any."""
    return msgspec.structs.replace(plan, runnable=plan.runnable[::4])


def takes(backend: Backend, case: Case) -> bool:
    """Whether the case's operation is one that the backend computes, whatever its rules say."""
    return _op(case) in backend.ops


def refuse_untaken(cases: Iterable[Case], backends: Sequence[Backend]) -> None:
    """InputError for the first case whose operation none of the backends computes."""
    for one in cases:
        if any(takes(backend, one) for backend in backends):
            continue
        if len(backends) == 1:
            (only,) = backends
            computed = ", ".join(only.ops)
            raise InputError(
                f"{one}: {only.name} does not compute {_op(one)}; it computes {computed}"
            )
        names = ", ".join(backend.name for backend in backends)
        raise InputError(f"{one}: none of {names} computes {_op(one)}")


def run_plan(plan: Plan, timeout_s: float, runner: Runner = try_cases) -> Iterator[Trial]:
    """Every trial of a plan: the refused ones, then the run ones as they end."""
    yield from plan.refused
    if plan.runnable:
        yield from runner(plan.backend, plan.device, plan.runnable, timeout_s)


def summary(plan: Plan, trials: Iterable[Trial]) -> BackendTrials:
    """The trials of a plan with the level that they reached: none where nothing ran."""
    kept = tuple(trials)
    ran = any(trial.status not in ("unsupported", "unknown") for trial in kept)
    return BackendTrials(plan.backend, plan.device, plan.level if ran else "none", kept)


def report(results: Iterable[BackendTrials]) -> SmokeReport:
    """The run as a whole: a run in which nothing ran is not a good one."""
    kept = tuple(results)
    good = any(one.ran for one in kept) and not any(one.bad for one in kept)
    return SmokeReport(backends=kept, exit_code=Exit.OK if good else Exit.NO)


def runnable_backends(registry: Registry) -> tuple[Backend, ...]:
    """Backends whose kernels are written and whose operations have cases."""
    return tuple(
        backend
        for backend in registry.backends
        if backend.kernel != "planned" and OPERATIONS.keys() & set(backend.ops)
    )


def _without_gpus(machine: Machine) -> Machine:
    """The machine as its processor's backends see it."""
    return msgspec.structs.replace(machine, nvidia=Vendor(), amd=Vendor(), intel=Vendor())


def _paged_for(one: Case, backend: Backend, platform: str) -> Case:
    """The case with pages that the backend takes, where it leaves their size at the default."""
    page, units = one.params.get("page"), backend.block_units(platform)
    if page != DEFAULT_BLOCK or not units or any(DEFAULT_BLOCK % unit == 0 for unit in units):
        return one
    return case_of(one.op, {**one.params, "page": min(units)})


def _op(one: Case) -> str:
    return layer_for(one).op or one.op


def _where(backend: Backend, machine: Machine) -> tuple[str, Level]:
    """The worker's device for this backend here, and the level that a run of it proves."""
    platforms = {rank.platform for rank in backend.ranks}
    if machine.platform != "cpu" and machine.platform in platforms:
        return ("xpu" if machine.platform == "xpu" else "cuda"), "device"
    if "cpu" in platforms:
        return "cpu", "device"
    return "interpret", "interpret"


def _reasons(backend: Backend, subject: Subject, level: Level) -> Iterator[Finding]:
    rules = backend.rules
    # what calls an installed package has no kernels to interpret: it asks for its machine
    if level == "interpret" and backend.kernel == "bundled":
        rules = (*INTERPRETER, *(rule for rule in rules if rule.about == "layer"))
    for rule in rules:
        finding = rule.check(subject)
        if finding is not None and not finding.met:
            yield finding


def _only_unknown(reasons: tuple[Finding, ...]) -> bool:
    return all(reason.verdict is Verdict.UNKNOWN for reason in reasons)
