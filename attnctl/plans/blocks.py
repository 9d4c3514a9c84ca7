"""The block size of a layer's cache in a plan, and the backends that may take turns on it."""

from __future__ import annotations

from typing import Any

from attnctl.decision import Decision
from attnctl.exits import InputError
from attnctl.layer import Layer
from attnctl.model.spec import LayerGroup
from attnctl.profile.document import shape_of
from attnctl.profile.pick import Picker, Table
from attnctl.registry import Registry
from attnctl.requirements.rule import Subject
from attnctl.runtime import open_backend
from attnctl.selection.picking import page_of

LATENT = ("mla", "mla_sparse")


def interchangeable(
    decision: Decision, registry: Registry
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The eligible backends that may take turns on one cache, and sentences about the others.

    A backend that the user demanded stands alone.
    """
    first = decision.pick
    if first is None or decision.requested:
        return (first.name,) if first else (), ()
    names = [one.name for one in decision.candidates if one.ok and one.kernel != "planned"]
    kept, notes = [], []
    for name in (first.name, *(name for name in names if name != first.name)):
        if name == first.name or _same_cache(first.name, name, decision, registry):
            kept.append(name)
        else:
            notes.append(f"{name} keeps its cache otherwise than {first.name} and is left out")
    return tuple(kept), tuple(notes)


def _same_cache(one: str, other: str, decision: Decision, registry: Registry) -> bool:
    """True where both lay out the same blocks, in whatever order of memory, or states by slot."""
    group = decision.group
    if group.is_ssm:
        return True
    size = decision.pick.block_size if decision.pick else None
    shape = _shape(one, size, decision, registry)
    return shape is not None and bool(shape == _shape(other, size, decision, registry))


def _shape(name: str, size: int | None, decision: Decision, registry: Registry) -> Any:
    """How a backend lays out one block of so many tokens; None: it cannot, or cannot be loaded."""
    lengths = widths(decision.op, decision.group, decision.group.num_kv_heads)
    try:
        return open_backend(name, registry).cache_shape(1, size, *lengths)
    except (InputError, ImportError):
        return None


def sized(
    subject: Subject,
    decision: Decision,
    registry: Registry,
    picker: Picker,
    eligible: tuple[str, ...],
) -> tuple[Table, tuple[str, ...]]:
    """The table of the backends that take the profile's block size, sentences about the others.

    The decision's own stays, since a size that it does not take is not asked of it.
    """
    layer, shape = subject.layer, shape_of(subject.layer)
    notes: list[str] = []
    while True:
        table = picker.table(shape, eligible)
        size = block_of(subject, decision, registry, table)
        unable = [name for name in eligible if not _takes(name, size, subject, decision, registry)]
        if not unable:
            return table, (*notes, *_unmet(layer, decision, table, size))
        notes += [
            f"{name} takes no cache with {size} tokens in a block, which the profile asks for, and "
            "is left out"
            for name in unable
        ]
        eligible = tuple(name for name in eligible if name not in unable)


def _unmet(layer: Layer, decision: Decision, table: Table, size: int | None) -> tuple[str, ...]:
    """A sentence where the decision's backend does not take the size that the profile asks for."""
    asked, pick = table.block_size, decision.pick
    if pick is None or size is None or asked in (None, size) or layer.block_size is not None:
        return ()
    return (
        f"{pick.name} takes no cache with {asked} tokens in a block, which the profile asks for, "
        f"and has {size}",
    )


def _takes(
    name: str, size: int | None, subject: Subject, decision: Decision, registry: Registry
) -> bool:
    """Whether a backend lays out such a cache here; the decision's own is not asked."""
    pick, group = decision.pick, decision.group
    if group.is_ssm or pick is None or size is None or name == pick.name:
        return True
    if not _declared(name, size, subject, registry):
        return False
    return size == pick.block_size or _shape(name, size, decision, registry) is not None


def _declared(name: str, size: int, subject: Subject, registry: Registry) -> bool:
    """Whether a backend, as what is installed here makes it, takes blocks of so many tokens."""
    backend = registry.get(name)
    return backend is None or backend.here(subject).takes_block(size, subject.platform)


def block_of(subject: Subject, decision: Decision, registry: Registry, table: Table) -> int | None:
    """The profile's size, if the user named none and the decision's backend takes it."""
    pick, asked, layer = decision.pick, table.block_size, subject.layer
    backend = registry.get(pick.name) if pick else None
    own = pick.block_size if pick else None
    if own is None and backend is not None:
        own = page_of(backend.here(subject), layer, subject.platform)
    if pick is None or own is None or asked is None or layer.block_size is not None:
        return own
    if not _declared(pick.name, asked, subject, registry):
        return own
    lengths = widths(decision.op, decision.group, layer.kv_heads)
    try:
        open_backend(pick.name, registry).cache_shape(1, asked, *lengths)
    except InputError:
        return own
    return asked


def widths(op: str | None, group: LayerGroup, kv_heads: int | None) -> tuple[int | None, ...]:
    """What cache_shape takes after the block size: latent widths, or heads and head sizes."""
    if op in LATENT and group.mla is not None:
        return group.mla.kv_lora_rank, group.mla.qk_rope_head_dim
    return kv_heads, group.head_size, group.head_size_v
