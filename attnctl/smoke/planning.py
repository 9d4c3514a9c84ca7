"""Plans and runs smoke: which cases a backend is tried on here, at which level, with what result.

Cases come from the operations; a backend's own rules say which of them it takes. Without a GPU the
Triton backends run in Triton's interpreter, where only rules about the layer are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from attnctl.compiling.declared import declared
from attnctl.exits import Exit, InputError
from attnctl.findings import Finding, Verdict, unmet
from attnctl.machine import Machine, Vendor
from attnctl.ops.case import Case
from attnctl.ops.catalog import OPERATIONS, case_of, layer_for
from attnctl.registry import Backend, Registry
from attnctl.requirements import Subject, package
from attnctl.requirements.rule import Rule
from attnctl.requirements.words import any_of
from attnctl.select import subject_of
from attnctl.selection.picking import DEFAULT_BLOCK
from attnctl.smoke.place import Place
from attnctl.smoke.trials import BackendTrials, Level, SmokeReport, Trial
from attnctl.smoke.workers import importable, try_cases

# what the interpreter needs of the machine, whatever its devices are
INTERPRETER = (package("torch"), package("triton"))


def _masked_values(subject: Subject) -> Finding:
    return unmet("masked_values", "kernels of ours", "a call into a package's, which may read them")


# asked of adapters alone, and of cases with poison alone
MASKED_VALUES = Rule("masked_values", "machine", _masked_values, wanted="kernels of ours")


def _planned(subject: Subject) -> Finding:
    stored = subject.layer.kv_cache_dtype
    return unmet("kernel", f"a kernel for a cache in {stored}", "a planned one, not written yet")


# asked where the backend's rules take a cache that its kernel does not
PLANNED = Rule("kernel", "layer", _planned, wanted="a kernel for this cache")

NO_KERNELS = Rule(
    "interpret",
    "machine",
    lambda subject: unmet("interpret", "Triton kernels of its own", "none"),
    wanted="Triton kernels of its own",
)


class Plan(msgspec.Struct, frozen=True):
    """What one backend is tried on: runnable cases, and those that its rules refuse.

    Where the cases are compiled, most_spills_bytes: what a thread may spill; every_knob: with each
    setting that tune would try, too.
    """

    backend: str
    device: str
    level: Level
    runnable: tuple[str, ...]
    refused: tuple[Trial, ...]
    most_spills_bytes: int | None = None
    every_knob: bool = False


def plan(
    backend: Backend, machine: Machine, wanted: Iterable[Case], place: Place | None = None
) -> Plan:
    """Which of these cases the backend takes on this machine, and where it would run them.

    place: where the user wants them run; None: wherever this backend proves most.
    """
    device, level = _where(backend, machine) if place is None else (place.device, place.level)
    seen = _without_gpus(machine) if device == "cpu" else machine
    rules = backend.rules
    # what calls an installed package has no kernels to interpret: it asks for its machine
    if level == "interpret" and interpretable(backend):
        rules = (*INTERPRETER, *(rule for rule in rules if rule.about == "layer"))
    elif place is not None and level == "interpret":
        rules = (NO_KERNELS,)
    taken = [case for case in wanted if takes(backend, case)]
    index = 0 if place is None else place.index
    return Plan(backend.name, device, level, *sorted_by_rules(backend, seen, taken, rules, index))


def sorted_by_rules(
    backend: Backend,
    machine: Machine,
    wanted: Iterable[Case],
    rules: Iterable[Rule],
    index: int = 0,
) -> tuple[tuple[str, ...], tuple[Trial, ...]]:
    """The texts of the cases that every rule takes on a device, and the others with reasons."""
    runnable, refused, rules = [], [], tuple(rules)
    for case in wanted:
        subject = subject_of(machine, layer_for(case), index)
        one = _paged_for(case, backend.here(subject), machine.platform)
        if one is not case:
            subject = subject_of(machine, layer_for(one), index)
        poisoned = backend.kernel == "adapter" and bool(one.params.get("poison"))
        asked = [*rules, *([MASKED_VALUES] if poisoned else [])]
        if backend.kernel_for(subject.layer) == "planned":
            asked.append(PLANNED)
        reasons = (*_reasons(asked, subject), *_pages(one, backend, subject))
        if reasons:
            status = "unknown" if _only_unknown(reasons) else "unsupported"
            refused.append(Trial(one.text, status, reasons=reasons))  # type: ignore[arg-type]
        else:
            runnable.append(one.text)
    return tuple(runnable), tuple(refused)


def _pages(case: Case, backend: Backend, subject: Subject) -> Iterator[Finding]:
    """Of layers that keep no cache: their case is computed over pages all the same."""
    page, here = case.params.get("page"), backend.here(subject)
    if subject.layer.group.needs_kv_cache or not isinstance(page, int):
        return
    if not here.takes_block(page, subject.platform):
        units = any_of(here.block_units(subject.platform))
        yield unmet("block_size", f"pages of a multiple of {units}", str(page), "--case")


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


def run_plan(
    plan: Plan, timeout_s: float, *, twice: bool = False, cache_bytes: int | None = None
) -> Iterator[Trial]:
    """Every trial of a plan: the refused ones, then the run ones as they end.

    cache_bytes: as in attnctl.smoke.workers.try_cases.
    """
    yield from plan.refused
    if plan.runnable:
        yield from try_cases(
            plan.backend,
            plan.device,
            plan.runnable,
            timeout_s,
            twice=twice,
            cache_bytes=cache_bytes,
        )


def summary(plan: Plan, trials: Iterable[Trial]) -> BackendTrials:
    """The trials of a plan with the level that they reached: none where nothing ran."""
    kept = tuple(trials)
    ran = any(trial.status not in ("unsupported", "unknown") for trial in kept)
    return BackendTrials(plan.backend, plan.device, plan.level if ran else "none", kept)


def with_imports(results: Iterable[BackendTrials]) -> list[BackendTrials]:
    """The results, with the level import for backends that ran nothing and can be imported."""
    kept = list(results)
    idle = [one.backend for one in kept if one.level == "none"]
    found = importable(idle) if idle else frozenset()
    return [
        msgspec.structs.replace(one, level="import") if one.backend in found else one
        for one in kept
    ]


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
    if one.params.get("page") != DEFAULT_BLOCK or backend.takes_block(DEFAULT_BLOCK, platform):
        return one
    return case_of(one.op, {**one.params, "page": min(backend.block_units(platform))})


def _op(one: Case) -> str:
    return layer_for(one).op or one.op


def interpretable(backend: Backend) -> bool:
    """Whether it has Triton kernels of ours, which Triton's interpreter can run."""
    if backend.kernel != "bundled":
        return False
    # one without a kernel for processors can have no other; beside one, it names what is compiled
    return "cpu" not in {rank.platform for rank in backend.ranks} or bool(declared(backend))


def _where(backend: Backend, machine: Machine) -> tuple[str, Level]:
    """The worker's device for this backend here, and the level that a run of it proves."""
    platforms = {rank.platform for rank in backend.ranks}
    if machine.platform != "cpu" and machine.platform in platforms:
        return ("xpu" if machine.platform == "xpu" else "cuda"), "device"
    if "cpu" in platforms:
        return "cpu", "device"
    return "interpret", "interpret"


def _reasons(rules: Iterable[Rule], subject: Subject) -> Iterator[Finding]:
    for rule in rules:
        finding = rule.check(subject)
        if finding is not None and not finding.met:
            yield finding


def _only_unknown(reasons: tuple[Finding, ...]) -> bool:
    return all(reason.verdict is Verdict.UNKNOWN for reason in reasons)
