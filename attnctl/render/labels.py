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


def by_machine(reports: Sequence[SelectReport], models: int) -> list[tuple[SelectReport, ...]]:
    """The reports of each machine, by position: two machines may share a name."""
    step = max(1, models)
    return [tuple(reports[at : at + step]) for at in range(0, len(reports), step)]


def machine_labels(rows: Sequence[Sequence[SelectReport]]) -> list[str]:
    """rows: the reports of each machine."""
    return distinct([reports[0].machine.name for reports in rows])


def placed(rows: Sequence[Sequence[SelectReport]]) -> list[tuple[str, SelectReport]]:
    """Each report with its machine's name, and its model's where there are several."""
    return [
        (machine if len(reports) == 1 else f"{model} on {machine}", report)
        for machine, reports in zip(machine_labels(rows), rows, strict=True)
        for model, report in zip(model_labels(reports), reports, strict=True)
    ]


def _parts(report: SelectReport) -> list[str]:
    path = report.model.path.rstrip("/").removesuffix("/config.json").removesuffix(".json")
    named = [part for part in path.split("/") if part]
    return named or [report.model.architecture or report.model.model_type or "model"]
