"""What the parent and the children of a compilation with every knob say to each other. No torch.

A launch has a key that tells what it compiles to: its target, the text of its kernel, the types and
constants that it gets, and the version of Triton. What only changes a grid has one key.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from attnctl.compiling.report import Launched


class Group(NamedTuple):
    """A case of a backend: a child that stays with it builds its batch once."""

    backend: str
    case: str


class ListAsk(msgspec.Struct, frozen=True, tag="list"):
    """What would be launched for a case on each of the targets?"""

    group: Group
    targets: tuple[str, ...]


class MakeAsk(msgspec.Struct, frozen=True, tag="make"):
    """Compile this launch of this setting, both by their places in what was listed."""

    group: Group
    target: str
    setting: int
    launch: int
    key: str


class Listed(msgspec.Struct, frozen=True):
    """The settings of a case on a target, the default first, and the keys of what each launches.

    refused: place of a setting -> why nothing could be launched with it.
    """

    target: str
    settings: tuple[str, ...]
    launches: tuple[tuple[str, ...], ...]
    refused: dict[int, str] = {}


class Lists(msgspec.Struct, frozen=True, tag="lists"):
    lists: tuple[Listed, ...]


class Made(msgspec.Struct, frozen=True, tag="made", omit_defaults=True):
    """What a launch became. detail: why it became nothing."""

    key: str
    status: Literal["compiled", "error", "crashed", "timeout"] = "compiled"
    launched: Launched | None = None
    detail: str = ""

    @property
    def final(self) -> bool:
        """Whether it would be the same the next time: a crash may come of a machine's memory."""
        return self.status in ("compiled", "error")

    def faults(self, most_spills_bytes: int | None = None) -> tuple[str, ...]:
        """What is bad about it. most_spills_bytes: None where it may spill what it likes."""
        if self.launched is None:
            return (self.detail if self.status == "error" else f"{self.status}: {self.detail}",)
        most = self.launched.spills_bytes if most_spills_bytes is None else most_spills_bytes
        return self.launched.faults(most)


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Nothing could be listed. status: how the child that was asked fared."""

    detail: str
    status: Literal["error", "crashed", "timeout"] = "error"


Ask: TypeAlias = ListAsk | MakeAsk
Answer: TypeAlias = Lists | Made | Failed


def kernel_of(key: str) -> str:
    """The name of the kernel whose launch has the key."""
    return key.split(":")[1]
