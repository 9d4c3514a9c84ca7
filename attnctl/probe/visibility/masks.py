"""What masks of all vendors have in common: entries, the devices that they leave, the numbering."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from attnctl.findings import Finding, unmet
from attnctl.machine import Gpu


class Entry(msgspec.Struct, frozen=True):
    """One visible device: the physical GPU, and its part where only a part is visible.

    part: a MIG identifier, or the number of a sub-device (tile) as text; "" for the whole GPU.
    """

    physical: int
    part: str = ""


class Visible(msgspec.Struct, frozen=True):
    """entries: visible devices, in logical order. source: the masks that decided."""

    entries: tuple[Entry, ...]
    source: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def physical(self) -> tuple[int, ...]:
        return tuple(entry.physical for entry in self.entries)


def everything(count: int) -> Visible:
    return Visible(tuple(Entry(index) for index in range(count)))


def applied(gpus: Sequence[Gpu], visible: Visible) -> tuple[Gpu, ...]:
    """The GPUs with `visible` and `logical_index` set; they stand in the order that masks count.

    A GPU of which several parts are visible takes the number of the first.
    """
    logical: dict[int, int] = {}
    for number, entry in enumerate(visible.entries):
        logical.setdefault(entry.physical, number)
    return tuple(
        msgspec.structs.replace(gpu, visible=at in logical, logical_index=logical.get(at))
        for at, gpu in enumerate(gpus)
    )


def mask_unmet(code: str, found: str, source: str, fix: str) -> Finding:
    """The finding about an entry that cuts a mask short."""
    return unmet(code, "a mask of which every entry fits one device", found, source, fix)


def words(mask: str) -> list[str]:
    """The entries of a mask; an empty one between commas is an entry that fits nothing."""
    return [word.strip() for word in mask.split(",")] if mask.strip() else []


def named(word: str) -> str:
    """An entry as findings name it."""
    return word or "an empty entry"


def is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 6


def leading_number(word: str) -> int | None:
    """The number that an entry starts with, as strtol reads it; None where it starts with none."""
    sign = word[:1] if word[:1] in ("-", "+") else ""
    digits = ""
    for letter in word[len(sign) :]:
        if not (letter.isascii() and letter.isdigit()):
            break
        digits += letter
    if not digits or len(digits) > 9:
        return None
    return -int(digits) if sign == "-" else int(digits)
