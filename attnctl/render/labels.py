"""Labels of machines and models that tell them apart in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attnctl.selection.report import SelectReport


def distinct(labels: Sequence[str]) -> list[str]:
    """The labels, with #2 and on behind those that came before."""
    seen: Counter[str] = Counter()
    told = []
    for label in labels:
        seen[label] += 1
        told.append(label if seen[label] == 1 else f"{label} #{seen[label]}")
    return told


def model_labels(reports: Sequence[SelectReport]) -> list[str]:
    """Names of models, with as many of their folders as tell them apart."""
    paths = [_parts(report) for report in reports]
    names = []
    for own in paths:
        rivals = [other for other in paths if other != own and other[-1:] == own[-1:]]
        depth = 1
        while depth < len(own) and any(other[-depth:] == own[-depth:] for other in rivals):
            depth += 1
        names.append("/".join(own[-depth:]))
    return distinct(names)


def _parts(report: SelectReport) -> list[str]:
    path = report.model.path.rstrip("/").removesuffix("/config.json").removesuffix(".json")
    named = [part for part in path.split("/") if part]
    return named or [report.model.architecture or report.model.model_type or "model"]
