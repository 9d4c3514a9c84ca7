"""Whether a profile fits a device: valid, stale, or foreign, each with its findings."""

from __future__ import annotations

from typing import Literal

import msgspec

from attnctl.findings import Finding, Verdict, met, unknown, unmet
from attnctl.machine import Gpu, Machine
from attnctl.profile.document import Key, Profile, Versions, key_of, versions_of

RETIME = "take a profile that was timed with these versions; until then it is used"
KEY_FIELDS = ("vendor", "arch", "pci_id", "unit_count")


class Match(msgspec.Struct, frozen=True):
    """How a profile fits. Foreign: not used. Stale: used, one warning, never written back."""

    status: Literal["valid", "stale", "foreign"]
    findings: tuple[Finding, ...]
    profile: Profile

    @property
    def usable(self) -> bool:
        return self.status != "foreign"


def match(profile: Profile, machine: Machine, gpu: Gpu | None) -> Match:
    """How the profile fits this device of this machine."""
    findings = (
        *_key_findings(profile.key, key_of(machine, gpu)),
        *_version_findings(profile.versions, versions_of(machine)),
    )
    return Match(_status(findings), findings, profile)


def _status(findings: tuple[Finding, ...]) -> Literal["valid", "stale", "foreign"]:
    if any(not finding.met for finding in findings if finding.code == "profile_key"):
        return "foreign"
    compilers = (finding for finding in findings if finding.code == "profile_version")
    return "stale" if any(not finding.met for finding in compilers) else "valid"


def _key_findings(key: Key, here: Key) -> list[Finding]:
    found = []
    for field in KEY_FIELDS:
        wanted, have = getattr(key, field), getattr(here, field)
        # a profile that does not name a field does not ask about it
        if wanted is None:
            continue
        fix = f"take a profile that was timed on {here}"
        if have is None:
            finding = unknown("profile_key", f"{field} {wanted}", "not known", "profile", fix)
        elif wanted == have:
            finding = met("profile_key", f"{field} {wanted}", str(have), "profile")
        else:
            finding = unmet("profile_key", f"{field} {wanted}", str(have), "profile", fix)
        found.append(finding)
    return found


def _version_findings(timed: Versions, here: Versions) -> list[Finding]:
    found = []
    for field in ("torch", "triton"):
        wanted, have = getattr(timed, field), getattr(here, field)
        if wanted is None:
            continue
        verdict = (
            Verdict.UNKNOWN if have is None else Verdict.MET if have == wanted else Verdict.UNMET
        )
        fix = "" if verdict is Verdict.MET else RETIME
        text = have or "not known"
        found.append(Finding("profile_version", verdict, f"{field} {wanted}", text, "profile", fix))
    if timed.driver and here.driver and timed.driver != here.driver:
        wanted = f"driver {timed.driver}"
        found.append(unmet("profile_driver", wanted, here.driver, "profile", "a note: still used"))
    return found
