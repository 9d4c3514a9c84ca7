"""A knob as people read and write it."""

from __future__ import annotations


def knob_text(name: str, value: int | str | bool) -> str:
    """ "decode.keys=128", "groups=false"."""
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}"
