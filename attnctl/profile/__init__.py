"""A tuned selection profile: measured timings by layer shape and workload point, as one JSON file.

A profile is keyed by what the hardware is, never by its marketing name. It may reorder the eligible
backends; it never makes an ineligible one eligible. Every name is loaded on first use; the
functions match, merge and pick are in the modules of these names.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from attnctl.profile.canonical import encode as encode
    from attnctl.profile.document import key_of as key_of
    from attnctl.profile.document import parse as parse
    from attnctl.profile.document import read_profile as read_profile
    from attnctl.profile.document import shape_of as shape_of
    from attnctl.profile.document import versions_of as versions_of
    from attnctl.profile.hashes import kernel_hashes as kernel_hashes
    from attnctl.profile.keys import Key as Key
    from attnctl.profile.keys import Versions as Versions
    from attnctl.profile.loading import load_profile as load_profile
    from attnctl.profile.match import Match as Match
    from attnctl.profile.order import Order as Order
    from attnctl.profile.order import measured_order as measured_order
    from attnctl.profile.pick import Pick as Pick
    from attnctl.profile.pick import Picker as Picker
    from attnctl.profile.shelf import Shelf as Shelf
    from attnctl.profile.store import save as save
    from attnctl.profile.values import Entry as Entry
    from attnctl.profile.values import Point as Point
    from attnctl.profile.values import Profile as Profile
    from attnctl.profile.values import Rejected as Rejected
    from attnctl.profile.values import Shape as Shape
    from attnctl.profile.values import Timing as Timing

# module -> the public names that it defines
_HOMES = {
    "canonical": ("encode",),
    "document": ("key_of", "parse", "read_profile", "shape_of", "versions_of"),
    "hashes": ("kernel_hashes",),
    "keys": ("Key", "Versions"),
    "loading": ("load_profile",),
    "match": ("Match",),
    "order": ("Order", "measured_order"),
    "pick": ("Pick", "Picker"),
    "shelf": ("Shelf",),
    "store": ("save",),
    "values": ("Entry", "Point", "Profile", "Rejected", "Shape", "Timing"),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"attnctl.profile.{module}"), name)
    raise AttributeError(f"module 'attnctl.profile' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(name for names in _HOMES.values() for name in names)
