"""Lines of a golden file: each answer once, with the machines that agree on it."""

from __future__ import annotations

from collections.abc import Iterator


def grouped(answers: dict[str, str]) -> Iterator[str]:
    """answers: by machine. The lines in the order in which their answers are first met."""
    for answer in dict.fromkeys(answers.values()):
        agreeing = " ".join(name for name, other in answers.items() if other == answer)
        yield f"    {answer}: {agreeing}"
