"""Whether a profile fits a device: valid, stale, or foreign, each with its findings."""

from __future__ import annotations

from collections.abc import Iterable
from string import hexdigits
from typing import Literal

import msgspec

from attnctl.findings import Finding, Verdict, met, unknown, unmet
from attnctl.machine import Gpu, Machine
from attnctl.profile.document import key_of, versions_of
from attnctl.profile.keys import ANY, UNKNOWN, Key, Versions
from attnctl.profile.values import Profile

RETIME = "take a profile that was timed with these versions; until then it is used"
KEY_FIELDS = ("vendor", "arch", "pci_id", "unit_count")
NOT_KNOWN = "not known"
_ID_DIGITS = 4
MEMORY_TOLERANCE = 0.05
"""Share by which one part's memory differs with firmware, ECC and what the driver keeps."""

Status = Literal["valid", "stale", "foreign"]


class Match(msgspec.Struct, frozen=True):
    """How a profile fits. Foreign: not used. Stale: used, one warning, never written back."""

    status: Status
    findings: tuple[Finding, ...]
    profile: Profile

    @property
    def usable(self) -> bool:
        return self.status != "foreign"


def match(profile: Profile, machine: Machine, gpu: Gpu | None) -> Match:
    """How the profile fits this device of this machine."""
    findings = (
        *key_findings(profile.key, key_of(machine, gpu)),
        *version_findings(profile.versions, versions_of(machine)),
        *_memory_findings(profile.memory_bytes, gpu),
    )
    return Match(status_of(findings), findings, profile)


def status_of(findings: Iterable[Finding]) -> Status:
    """Another key is foreign, another compiler stale; driver and memory are notes."""
    unmet_codes = {finding.code for finding in findings if not finding.met}
    if "profile_key" in unmet_codes:
        return "foreign"
    return "stale" if "profile_version" in unmet_codes else "valid"


def key_findings(key: Key, here: Key) -> list[Finding]:
    """One finding for each field that the profile asks about."""
    found = []
    for field in KEY_FIELDS:
        wanted, have = getattr(key, field), getattr(here, field)
        # a profile that does not name a field does not ask about it
        if wanted is None or wanted == ANY:
            continue
        fix = f"take a profile that was timed on {here}"
        if have in (None, UNKNOWN) or wanted == UNKNOWN:
            text = NOT_KNOWN if have in (None, UNKNOWN) else str(have)
            finding = unknown("profile_key", f"{field} {wanted}", text, "profile", fix)
        elif same(wanted, have):
            finding = met("profile_key", f"{field} {wanted}", str(have), "profile")
        else:
            finding = unmet("profile_key", f"{field} {wanted}", str(have), "profile", fix)
        found.append(finding)
    return found


def same(one: object, other: object) -> bool:
    """Whether two values of a key's field are one: hardware's names are not told by their case.

    Tools print "10de:2335", "10DE:2335", "0x2335" and "2335", and people write a profile or a
    machine file from what they print. The vendor has a field of its own.
    """
    if isinstance(one, str) and isinstance(other, str):
        if one.lower() == other.lower():
            return True
        if ":" in one and ":" in other:
            return False
        return _device_id(one) == _device_id(other) != ""
    return one == other


def _device_id(text: str) -> str:
    """The four digits of a PCI device, whether or not its vendor's stand before; "" for others."""
    vendor, colon, device = text.lower().rpartition(":")
    digits = device.removeprefix("0x")
    if len(digits) != _ID_DIGITS or not set(digits) <= set(hexdigits):
        return ""
    return "" if colon and len(vendor.removeprefix("0x")) != _ID_DIGITS else digits


def same_key(one: Key, other: Key) -> bool:
    """Whether two keys are of one kind of device."""
    return all(same(getattr(one, field), getattr(other, field)) for field in KEY_FIELDS)


def version_findings(timed: Versions, here: Versions) -> list[Finding]:
    """One finding for each compiler that the profile states, and one for another driver."""
    found = []
    for field in ("torch", "triton"):
        wanted, have = getattr(timed, field), getattr(here, field)
        if wanted is None or wanted == ANY:
            continue
        if have is None or UNKNOWN in (wanted, have):
            verdict = Verdict.UNKNOWN
        else:
            verdict = Verdict.MET if have == wanted else Verdict.UNMET
        fix = "" if verdict is Verdict.MET else RETIME
        text = have or NOT_KNOWN
        found.append(Finding("profile_version", verdict, f"{field} {wanted}", text, "profile", fix))
    if timed.driver not in (None, ANY, UNKNOWN) and here.driver and timed.driver != here.driver:
        wanted = f"driver {timed.driver}"
        found.append(unmet("profile_driver", wanted, here.driver, "profile", "a note: still used"))
    return found


def _memory_findings(timed: int | None, gpu: Gpu | None) -> list[Finding]:
    """A note where the part has other memory: a slice of it, or another board of the same chip."""
    here = gpu.memory.total_bytes if gpu else None
    if not timed or not here or abs(here / timed - 1) <= MEMORY_TOLERANCE:
        return []
    wanted, found = (f"{size / 2**30:.1f} GiB of memory" for size in (timed, here))
    return [unmet("profile_memory", wanted, found, "profile", "a note: still used")]
