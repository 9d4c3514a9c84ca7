"""Tables for spreadsheets: one row for each group of layers, or for each backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attnctl.render.demands import titles
from attnctl.selection.report import SelectReport
from attnctl.support.table import Matrix

DECISION = (
    *("model", "machine", "layers", "op", "dtype", "kv_cache_dtype", "pick", "evidence", "why"),
    *("next", "block_size", "token_bytes", "state_bytes", "sequence_bytes", "engine_pick"),
)
SUPPORT = (
    *("backend", "computes", "runs_on", "devices", "packages", "head_sizes", "dtypes"),
    *("cache_dtypes", "block_sizes", "features", "kernel", "origin", "installed", "usable"),
    "not_usable",
)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows of RFC 4180 with a line feed at the end of each; None is an empty field."""
    import csv
    import io

    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()


def decisions_csv(reports: Iterable[SelectReport]) -> str:
    """A row for each group of layers of each model on each machine."""
    return csv_text(DECISION, (row for report in reports for row in _decisions(report)))


def _decisions(report: SelectReport) -> Iterable[Sequence[object]]:
    engine = [group.pick for group in report.engine.groups] if report.engine else []
    for place, (name, group) in enumerate(zip(titles(report), report.groups, strict=True)):
        winner, cost = group.winner, group.cost
        behind = [one.name for one in group.candidates if one.ok and one.name != group.pick]
        yield (
            report.model.path,
            report.machine.name,
            name,
            group.op,
            group.dtype,
            group.kv_cache_dtype,
            group.pick,
            winner and winner.evidence,
            winner and winner.why,
            " ".join(behind),
            winner and winner.block_size,
            cost and cost.token_bytes,
            cost and cost.state_bytes,
            cost and cost.sequence_bytes,
            engine[place] if place < len(engine) else None,
        )


def support_csv(table: Matrix) -> str:
    """A row for each backend."""
    return csv_text(
        SUPPORT,
        (
            (
                row.name,
                " ".join(row.ops),
                " ".join(row.platforms),
                "; ".join(row.devices),
                "; ".join(row.packages),
                row.head_sizes,
                row.dtypes,
                row.kv_cache_dtypes,
                row.blocks,
                " ".join(name for name, have in row.features.items() if have != "no"),
                row.kernel,
                row.origin,
                row.installed,
                row.usable,
                "; ".join(row.not_usable),
            )
            for row in table.rows
        ),
    )
