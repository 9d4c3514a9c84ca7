"""Numbers that no document may hold, in each kind: not a number, without an end, or endless."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.kinds import KINDS
from tests.faults.row import Row, file

TEXTS = {
    "NaN": "NaN",
    "Infinity": "Infinity",
    "a number of 40 digits": "9" * 40,
    "a number of 5000 digits": "9" * 5000,
    "a power of a thousand": "1e999",
    "a negative number": "-7",
    "a half": "0.5",
}
LEFT_OUT = "entries[0] is left out: ", 0
ENTRY = dict.fromkeys(list(TEXTS)[2:], LEFT_OUT)
MALFORMED = "JSON is malformed: invalid character (byte ", 2
IGNORED = "this tape: cpu, x86_64", 0

# kind -> a number of its good document, and what is said of each text in its place
ANSWERS: dict[str, tuple[str, dict[str, tuple[str, int]]]] = {
    "config": (
        "32,",
        {
            "NaN": ("num_hidden_layers is nan; a whole number is expected", 2),
            "Infinity": ("num_hidden_layers is inf; a whole number is expected", 2),
            "a number of 40 digits": ("is a number of more than 128 bits; a whole number", 2),
            "a number of 5000 digits": ("holds a whole number of thousands of digits", 2),
            "a power of a thousand": ("num_hidden_layers is inf; a whole number is expected", 2),
            "a negative number": ("num_hidden_layers is -7; a whole number from 0 to 10000", 2),
            "a half": ("num_hidden_layers is 0.5; a whole number is expected", 2),
        },
    ),
    "machine": (
        "132",
        {
            "NaN": MALFORMED,
            "Infinity": MALFORMED,
            "a number of 40 digits": (
                "nvidia.gpus[0].unit_count: a number of more than 64 bits",
                2,
            ),
            "a number of 5000 digits": ("nvidia.gpus[0].unit_count: integer value out of range", 2),
            "a power of a thousand": ("nvidia.gpus[0].unit_count: number out of range", 2),
            "a negative number": ("unit_count: -7, where nothing is less than 0: correct it", 2),
            "a half": ("nvidia.gpus[0].unit_count: expected 'int | null', got 'float'", 2),
        },
    ),
    "tape": ("528000000", dict.fromkeys(TEXTS, IGNORED)),
    "profile": ('"batch": 1', {"NaN": MALFORMED, "Infinity": MALFORMED, **ENTRY}),
    "workload": (
        "64",
        {
            "NaN": MALFORMED,
            "Infinity": MALFORMED,
            "a number of 40 digits": (f"[0].context is {'9' * 40}: must be from 1 to 16777216", 2),
            "a number of 5000 digits": ("Integer value out of range - at `$[0].context`", 2),
            "a power of a thousand": ("Number out of range - at `$[0].context`", 2),
            "a negative number": ("[0].context is -7: must be from 1 to 16777216", 2),
            "a half": ("Expected `int`, got `float` - at `$[0].context`", 2),
        },
    ),
    "earlier report": (
        "1.5",
        {
            "NaN": MALFORMED,
            "Infinity": MALFORMED,
            "a number of 5000 digits": ("Number out of range - at `$.backends[0].trials[0].sec", 2),
            "a power of a thousand": ("Number out of range - at `$.backends[0].trials[0].sec", 2),
        },
    ),
}


def numbers() -> Iterator[Row]:
    """One row for each kind and text. A report's numbers are times, and any finite one will do."""
    for kind in KINDS:
        number, answers = ANSWERS[kind.name]
        for fault, (says, code) in answers.items():
            text = number.replace(number.strip('" :,batch'), TEXTS[fault])
            data = kind.good.replace(number, text, 1)
            assert data != kind.good
            yield Row(
                f"{kind.article} with {fault}", kind.line, says, code, (file("x.json", data),)
            )


NUMBERS = tuple(numbers())
