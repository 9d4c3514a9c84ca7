"""The lines of a tune's journal: what each says, and whether it may be gone on from. No torch."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from attnctl.documents.json_text import UNREADABLE
from attnctl.exits import InputError
from attnctl.profile.keys import Key, Versions
from attnctl.profile.values import LONGEST_US, SHORTEST_US
from attnctl.tune.exchange import Verdict
from attnctl.tune.finals import Measured

SCHEMA = "attnctl.journal/1"


class Header(msgspec.Struct, frozen=True, tag="journal", kw_only=True):
    """What the journal's times hold for. tasks: of what is tuned; kernels: hashes of sources."""

    schema: str = SCHEMA
    key: Key
    versions: Versions
    tasks: str
    kernels: dict[str, str] = {}


class JudgedLine(msgspec.Struct, frozen=True, tag="judged"):
    candidate: str
    verdict: Verdict


class MeasuredLine(msgspec.Struct, frozen=True, tag="measured"):
    task: str
    measured: Measured
    seconds: float = 0.0


Entry = Header | JudgedLine | MeasuredLine


def entries_of(data: bytes, path: str) -> Iterator[Entry]:
    """Each line. InputError: one that is damaged, with its number."""
    for number, line in enumerate(data.splitlines(), 1):
        try:
            entry: Entry = msgspec.json.decode(line, type=Entry)
            _refuse_slips(entry)
        except (*UNREADABLE, ValueError) as error:
            raise InputError(
                f"{path}: line {number} is damaged ({error}): delete the file and start again"
            ) from error
        yield entry


def _refuse_slips(entry: Entry) -> None:
    """ValueError: times that nothing takes, which no profile would hold."""
    if isinstance(entry, MeasuredLine):
        for one in (*entry.measured.finals, *entry.measured.dropped):
            if not SHORTEST_US <= one.median_us <= LONGEST_US:
                raise ValueError(f"a time of {one.median_us} us")


def refuse_others(begun: Header, here: Header, path: str) -> None:
    """InputError: the journal was begun elsewhere, with other versions, or for something else."""
    if begun.schema != here.schema:
        raise InputError(
            f"{path}: its schema is {begun.schema}, this attnctl writes {SCHEMA}: "
            "resume it with the attnctl that began it, or delete it"
        )
    if begun.key != here.key:
        raise InputError(
            f"{path} was begun on {begun.key}, and this is {here.key}: resume it there"
        )
    for field in ("torch", "triton", "driver"):
        was, now = getattr(begun.versions, field), getattr(here.versions, field)
        if was != now:
            raise InputError(
                f"{path} was begun with {field} {was}, and here it is {now}: delete it"
            )
    if begun.tasks != here.tasks:
        raise InputError(f"{path} was begun for another model or workload: name another --output")
    changed = sorted(
        name
        for name in begun.kernels.keys() | here.kernels.keys()
        if begun.kernels.get(name) != here.kernels.get(name)
    )
    if changed:
        raise InputError(
            f"{path}: the kernels of {', '.join(changed)} changed since it was begun: delete it"
        )
