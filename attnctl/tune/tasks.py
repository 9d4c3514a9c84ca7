"""What a tune has to do: every layer shape of a model at every point of a workload. No torch."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence

import msgspec

from attnctl.exits import AttnctlError, Exit, InputError
from attnctl.layer import Layer, Options, layer_of
from attnctl.machine import Machine
from attnctl.model.spec import ModelSpec
from attnctl.profile.document import shape_of
from attnctl.profile.values import Shape
from attnctl.registry import Registry, is_made_of
from attnctl.requirements.packages import lack_of_torch
from attnctl.select import select, subject_of
from attnctl.selection.picking import own_page, page_of
from attnctl.tune.amounts import amounts
from attnctl.tune.settings import Work
from attnctl.tune.workload import Load

ROOM = 0.6
"""The share of a device's memory that one point may take."""


class Rival(msgspec.Struct, frozen=True, kw_only=True):
    """An eligible backend, with the tokens of a block of the cache that it would be given.

    units: sizes of which a block must be a multiple of one; (): any size will do. fixed: the user
    named the size, and no other is tried. told: every timing names its size, since that without a
    name is the one that the backend is declared with.
    """

    backend: str
    page: int = 0
    units: tuple[int, ...] = ()
    fixed: bool = False
    told: bool = False

    def takes(self, page: int) -> bool:
        """Whether it may be tried with blocks of so many tokens."""
        if page == self.page:
            return True
        if self.fixed or not self.page:
            return False
        return is_made_of(page, self.units)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One layer shape at one point. rivals: in the default order."""

    shape: Shape
    layer: Layer
    load: Load
    rivals: tuple[Rival, ...]

    @property
    def key(self) -> str:
        """The same text for the same task in every run."""
        return f"{self.shape_key} {self.load}"

    @property
    def shape_key(self) -> str:
        text = msgspec.json.encode((self.shape, self.rivals), order="sorted")
        return f"{self.shape.op}-{hashlib.sha256(text).hexdigest()[:12]}"

    @property
    def work(self) -> Work:
        load = self.load
        return Work(
            layer=self.layer,
            phase=load.phase,
            batch=load.batch,
            context=load.context,
            query=load.query,
        )

    @property
    def alike(self) -> str:
        """What its time depends on: a state's layer does not see how long the context is."""
        if not self.layer.group.is_ssm:
            return self.key
        load = self.load
        fresh = load.phase == "prefill" and load.context == load.query
        return f"{self.shape_key} {load.phase} B={load.batch}, q={load.query}, fresh={fresh}"


class Tasks(msgspec.Struct, frozen=True, kw_only=True):
    """notes: sentences on what is left out, and why."""

    tasks: tuple[Task, ...]
    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Of the shapes, their rivals and the points: what a journal must have been begun for."""
        text = "\n".join(sorted(task.key for task in self.tasks))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def plan_tasks(
    spec: ModelSpec,
    machine: Machine,
    registry: Registry,
    options: Options,
    loads: Sequence[Load],
    *,
    device: int = 0,
    backends: Collection[str] = (),
    ops: Collection[str] = (),
    memory_bytes: int | None = None,
) -> Tasks:
    """Every task that fits the device, layer shape by layer shape.

    backends, ops: only these; by default all that are eligible. InputError: no layer is meant.
    NothingToTimeError: those that are meant have no backend here, or do not fit the memory.
    """
    notes: list[str] = []
    found: dict[str, Task] = {}
    for layer in _layers(spec, options):
        if ops and layer.op not in ops:
            continue
        rivals = _rivals(layer, machine, registry, options, device, backends)
        if not rivals:
            which = "none of --backend" if backends else "no backend that runs here"
            notes.append(f"{_called(layer)}: {which} is eligible, attnctl select says why")
            continue
        for load in loads:
            task = Task(shape=shape_of(layer), layer=layer, load=load, rivals=rivals)
            why = _left_out(task, memory_bytes)
            if why:
                notes.append(f"{_called(layer)} at {load}: {why}")
            else:
                found.setdefault(task.key, task)
    if not found:
        _refuse(notes, lack_of_torch(machine))
    return Tasks(tasks=tuple(found.values()), notes=tuple(dict.fromkeys(notes)))


class NothingToTimeError(AttnctlError):
    """Layers are there and none of them can be timed here: the answer is no."""

    exit_code = Exit.NO


def _refuse(notes: list[str], lack: str) -> None:
    if not notes:
        raise InputError("tune: no layer of the model has such an operation: look at --op")
    told = lack or "; ".join(dict.fromkeys(notes))
    raise NothingToTimeError(f"tune: there is nothing to time: {told}")


def _layers(spec: ModelSpec, options: Options) -> Iterable[Layer]:
    return (layer_of(spec, group, options) for group in spec.groups if group.kind != "none")


def _rivals(
    layer: Layer,
    machine: Machine,
    registry: Registry,
    options: Options,
    device: int,
    backends: Collection[str],
) -> tuple[Rival, ...]:
    asked = msgspec.structs.replace(options, backend=())
    decision = select(layer, machine, registry, asked, device=device)
    subject = subject_of(machine, layer, device)
    found = []
    for candidate in decision.candidates:
        backend = registry.get(candidate.name)
        if backend is None or not candidate.ok or candidate.kernel == "planned":
            continue
        if not backends or candidate.name in backends:
            here = backend.here(subject)
            page = page_of(here, layer, subject.platform) or 0
            fixed = layer.block_size is not None
            found.append(
                Rival(
                    backend=candidate.name,
                    page=page,
                    units=here.block_units(subject.platform),
                    fixed=fixed,
                    told=page > 0 and (fixed or page != own_page(backend, subject.platform)),
                )
            )
    return tuple(found)


def _left_out(task: Task, memory_bytes: int | None) -> str:
    """Why a point cannot be timed for a layer, "" where it can."""
    group, load = task.layer.group, task.load
    if not group.causal and (load.phase == "decode" or load.query != load.context):
        return "its layers see a whole sequence at once"
    held = amounts(task.work).held_bytes
    if memory_bytes is not None and held > ROOM * memory_bytes:
        need, have = held / 2**30, memory_bytes / 2**30
        return f"it takes {need:.1f} GiB of {have:.1f} GiB of memory"
    return ""


def _called(layer: Layer) -> str:
    return f"{layer.op or layer.group.kind} layers"
