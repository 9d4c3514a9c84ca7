"""Calls bound by the real packages' signatures: what they would refuse is refused here."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

FACTS = json.loads((Path(__file__).parent / "signatures.json").read_text())

KINDS = {
    "either": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "keyword": inspect.Parameter.KEYWORD_ONLY,
    "rest": inspect.Parameter.VAR_POSITIONAL,
    "keywords": inspect.Parameter.VAR_KEYWORD,
}


def signature_of(package: str, file: str, function: str) -> inspect.Signature:
    """The signature as the package's release has it; defaults are source text."""
    (fact,) = (
        fact
        for fact in FACTS
        if (fact["package"], fact["function"]) == (package, function)
        and fact["file"].endswith(file)
    )
    return inspect.Signature([_parameter(*row) for row in fact["parameters"]])


def _parameter(name: str, kind: str, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, KINDS[kind], default=default)


def strict(
    package: str, file: str, function: str, compute: Callable[[dict[str, Any]], Any]
) -> Callable[..., Any]:
    """`compute` behind a release's signature. It is given what was passed, and no defaults.

    TypeError: an argument that the release has not, or one that it wants and did not get.
    """
    signature = signature_of(package, file, function)

    def call(*args: Any, **kwargs: Any) -> Any:
        return compute(dict(signature.bind(*args, **kwargs).arguments))

    call.__signature__ = signature
    return call
