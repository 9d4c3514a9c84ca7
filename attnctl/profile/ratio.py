"""How a ratio of two times is written."""

from __future__ import annotations


def times_text(ratio: float) -> str:
    """ "0.66x"; below a tenth two digits that count: "0.0031x", never "0.00x"."""
    return f"{ratio:.2f}x" if ratio >= 0.1 else f"{ratio:.2g}x"
