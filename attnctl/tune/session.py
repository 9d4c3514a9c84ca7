"""One tune from a request to a report: plans, opens the journal, runs, writes the profile."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Protocol

import msgspec

from attnctl.documents.files import refuse_unwritable
from attnctl.exits import InputError
from attnctl.layer import Options
from attnctl.machine import Gpu, Machine
from attnctl.model.spec import ModelSpec
from attnctl.profile.document import key_of, versions_of
from attnctl.profile.hashes import kernel_hashes
from attnctl.profile.keys import UNKNOWN, Key, Versions
from attnctl.profile.values import Profile
from attnctl.registry import Registry
from attnctl.tune.assemble import assemble
from attnctl.tune.bench import WorkerBench
from attnctl.tune.exchange import Bench, Site
from attnctl.tune.journal import journal_path, open_journal
from attnctl.tune.journal_lines import Header
from attnctl.tune.refine import run_refined
from attnctl.tune.report import TuneReport, tune_report
from attnctl.tune.run import Step
from attnctl.tune.store import journal_base, refuse_damaged, refuse_foreign, store
from attnctl.tune.tasks import NothingToTimeError, Tasks, plan_tasks
from attnctl.tune.workload import Load

MOST_JOBS = 12


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted. budget_s: None tries everything. jobs: None for as many as there is use.

    output: None for the user's own profiles, whose folder environ says.
    """

    spec: ModelSpec
    registry: Registry
    options: Options
    loads: tuple[Load, ...]
    machine: Machine
    device: int = 0
    backends: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    output: str | None = None
    environ: Mapping[str, str] = {}
    resume: bool = False
    budget_s: float | None = None
    timeout_s: float = 60.0
    jobs: int | None = None


class Watcher(Protocol):
    """Who is told how far it is."""

    def begin(self, total: int) -> None: ...

    def step(self, step: Step) -> None: ...


def tune(request: Request, watcher: Watcher, bench: Bench | None = None) -> TuneReport:
    """The report of a whole run. bench: where candidates run; by default a child of this process.

    InputError: nothing to time, a journal or a profile of something else, an unwritable file.
    """
    gpu = _gpu(request)
    key = key_of(request.machine, gpu)
    _plan(request, None)  # what is wrong with the request shows before a child starts
    _refuse_nameless(key)
    if request.output is not None:
        refuse_unwritable(request.output)
        refuse_foreign(request.output, key)
    base = journal_base(request.output, request.environ)
    if bench is not None:
        return _tuned(request, watcher, bench, key, base)
    with WorkerBench(place_of(request), jobs_of(request), request.timeout_s) as own:
        return _tuned(request, watcher, own, key, base)


def _tuned(request: Request, watcher: Watcher, bench: Bench, key: Key, base: str) -> TuneReport:
    begin = time.monotonic()
    site = bench.site()
    plan = _plan(request, site.memory_bytes or None)
    versions = _versions(request.machine, site)
    if request.output is None:
        refuse_damaged(key, versions, request.environ)
    else:
        refuse_foreign(request.output, key, versions)
    names = {rival.backend for task in plan.tasks for rival in task.rivals}
    kernels = kernel_hashes(request.registry, key.kind, names)
    header = Header(key=key, versions=versions, tasks=plan.fingerprint, kernels=kernels)
    path = journal_path(base, plan.fingerprint)
    with open_journal(path, header, request.resume) as journal:
        watcher.begin(len(plan.tasks))
        started = time.monotonic()
        tasks, measured = run_refined(
            plan.tasks, bench, journal, budget_s=request.budget_s, told=watcher.step
        )
        spent_s = time.monotonic() - started
        profile = assemble(
            tasks,
            measured,
            name=request.machine.name,
            key=key,
            versions=versions,
            site=site,
            kernels=kernels,
            day=time.strftime("%Y-%m-%d"),
            memory_bytes=_memory(request),
        )
        output = ""
        if profile.entries:
            output = _stored(request, profile, path)
            journal.remove()
    return tune_report(
        tasks,
        measured,
        profile,
        output=output,
        seconds=time.monotonic() - begin,
        notes=(
            *plan.notes,
            *_anew(request.resume and journal.begun, path),
            *_overrun(request.budget_s, spent_s),
        ),
    )


def _refuse_nameless(key: Key) -> None:
    """NothingToTimeError: what the device is cannot be told, so that no profile would be found."""
    for field in ("vendor", "arch"):
        if getattr(key, field) == UNKNOWN:
            raise NothingToTimeError(
                f"tune: the {field} of this device cannot be told (attnctl probe), and a profile "
                "that does not say it fits no device"
            )


def _stored(request: Request, profile: Profile, journal: str) -> str:
    """The file that the profile was added to. InputError: it could not be; where the times are."""
    try:
        return store(request.output, profile, request.environ)
    except InputError as error:
        raise InputError(
            f"{error}; what was measured is in {journal}: once it can be written, --resume goes on"
        ) from error


def _anew(anew: bool, path: str) -> tuple[str, ...]:
    """A sentence where there was nothing to go on from."""
    if not anew:
        return ()
    return (
        f"--resume: {path} was not there, since no tune of this model and workload was interrupted "
        "after its start: it began anew",
    )


def _overrun(budget_s: float | None, spent_s: float) -> tuple[str, ...]:
    """A sentence where the run took clearly longer than it was given."""
    if budget_s is None or spent_s <= 1.2 * budget_s + 1.0:
        return ()
    return (
        f"it took {spent_s:.0f} s instead of the {budget_s:g} s of --budget: the defaults of every "
        "backend are judged and timed at every point, whatever the clock says; fewer points or "
        "backends take less",
    )


def _plan(request: Request, memory_bytes: int | None) -> Tasks:
    return plan_tasks(
        request.spec,
        request.machine,
        request.registry,
        request.options,
        request.loads,
        device=request.device,
        backends=request.backends,
        ops=request.ops,
        memory_bytes=memory_bytes,
    )


def _gpu(request: Request) -> Gpu | None:
    gpus = request.machine.gpus
    return gpus[request.device] if gpus and 0 <= request.device < len(gpus) else None


def place_of(request: Request) -> str:
    """The device that its children compute on, as torch names it."""
    platform = request.machine.platform
    if platform == "cpu":
        return "cpu"
    return f"{'xpu' if platform == 'xpu' else 'cuda'}:{request.device}"


def jobs_of(request: Request) -> int:
    """How many children compile: one on a processor, which the timed kernels need whole."""
    if request.jobs is not None:
        return max(1, request.jobs)
    if request.machine.platform == "cpu":
        return 1
    usable = request.machine.cpu.usable or os.cpu_count() or 1
    return max(1, min(MOST_JOBS, usable - 2))


def _memory(request: Request) -> int | None:
    gpu = _gpu(request)
    return gpu.memory.total_bytes if gpu else request.machine.cpu.memory_total_bytes


def _versions(machine: Machine, site: Site) -> Versions:
    """The child's own torch and, on a GPU, triton, which are what was timed."""
    from attnctl import __version__

    found = versions_of(machine)
    triton = None if machine.platform == "cpu" else site.triton
    return msgspec.structs.replace(found, torch=site.torch, triton=triton, attnctl=__version__)
