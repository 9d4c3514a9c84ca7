"""What the codes of findings mean: the table behind `attnctl explain CODE`."""

from __future__ import annotations

import msgspec

from attnctl.codes import probing, selection, vendors

GROUPS = {
    "Devices": selection.DEVICE,
    "Packages": selection.SOFTWARE,
    "Layers and caches": selection.LAYER,
    "Features of a layer": selection.FEATURE,
    "Profiles": selection.PROFILE,
    "NVIDIA GPUs, as probed": vendors.NVIDIA,
    "AMD GPUs, as probed": vendors.AMD,
    "Intel GPUs, as probed": vendors.INTEL,
    "Visible devices, as probed": probing.VISIBILITY,
    "Software, as probed": probing.SOFTWARE,
    "The processor and the probe itself": probing.PROBE,
}

TABLE = {code: row for rows in GROUPS.values() for code, row in rows.items()}
"""Code -> (title, what the rule is about, what to do). "*" in a code stands for any word."""

INTRODUCTION = """\
What stands beside a reason of `attnctl select` or a finding of `attnctl probe`, as
`attnctl explain CODE` tells it. This page is generated: `attnctl explain --markdown`."""


class Meaning(msgspec.Struct, frozen=True):
    """One code: a title, what the rule is about, and what a user can do."""

    code: str
    title: str
    about: str
    advice: str


class Meanings(msgspec.Struct, frozen=True, kw_only=True):
    """Every code that there is, in the order of the table."""

    schema: str = "attnctl.codes/1"
    codes: tuple[Meaning, ...]


def meanings() -> Meanings:
    """Return the whole table as a document."""
    return Meanings(codes=tuple(Meaning(code, *row) for code, row in TABLE.items()))


def markdown() -> str:
    """Return the table as GitHub's markdown, a heading for each group."""
    parts = ["# Codes of reasons and findings\n", f"{INTRODUCTION}\n"]
    for title, rows in GROUPS.items():
        parts.append(f"## {title}\n")
        for code, (name, about, advice) in rows.items():
            text = " ".join(filter(None, (about, advice and f"*To do:* {advice}")))
            parts.append(f"- **`{code}`**: {name}. {text}".rstrip())
        parts.append("")
    return "\n".join(parts)


def meaning(code: str) -> Meaning | None:
    """Return what a code means; None for one that nobody here has heard of."""
    key = code if code in TABLE else next((k for k in TABLE if _fits(code, k)), None)
    return None if key is None else Meaning(code, *TABLE[key])


def near(code: str) -> tuple[str, ...]:
    """Return known codes that are spelt nearly like this one."""
    # costs a few milliseconds, and only a misspelling needs it
    from difflib import get_close_matches

    return tuple(get_close_matches(code, TABLE, n=3))


def _fits(code: str, pattern: str) -> bool:
    head, star, tail = pattern.partition("*")
    if not star or len(code) <= len(head) + len(tail):
        return False
    return code.startswith(head) and code.endswith(tail)
