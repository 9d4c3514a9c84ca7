"""The support table as markdown, for the docs and `attnctl list --markdown`."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.layer import FEATURES
from attnctl.support.table import Matrix, Order, Row

COLUMNS = (
    *("backend", "operations", "runs on", "needs", "head sizes", "dtypes", "cache dtypes"),
    *("blocks", "features", "kernel"),
)


def markdown(table: Matrix) -> str:
    """The table as GitHub's markdown: backends, orders, what the features mean, broken plug-ins."""
    parts = [_backends(table.rows), _orders(table.orders), _features()]
    if table.broken:
        parts.append(_section("Declarations that did not load", _broken(table)))
    return "\n\n".join(parts) + "\n"


def _backends(rows: Iterable[Row]) -> str:
    return "\n".join((_line(COLUMNS), _line("---" for _ in COLUMNS), *map(_backend, rows)))


def _backend(row: Row) -> str:
    features = [name if have == "yes" else f"{name} {have}" for name, have in _has(row)]
    kernel = row.kernel if row.origin == "built-in" else f"{row.kernel}, by {row.origin}"
    return _line(
        (
            f"`{row.name}`",
            ", ".join(row.ops),
            ", ".join(row.platforms),
            "; ".join((*row.devices, *row.packages)),
            row.head_sizes,
            row.dtypes,
            "a state, no cache" if row.is_ssm else row.kv_cache_dtypes,
            row.blocks,
            ", ".join(features),
            kernel,
        )
    )


def _has(row: Row) -> list[tuple[str, str]]:
    return [(name, have) for name, have in row.features.items() if have != "no"]


def _orders(orders: Iterable[Order]) -> str:
    lines = []
    for order in orders:
        lines.append(f"- {order.platform}, {order.op}: {', '.join(order.names)}")
        lines += [f"  - {rule}" for rule in order.rules]
    return _section("Default order", lines)


def _features() -> str:
    return _section("Features", [f"- {name}: {meaning}" for name, meaning in FEATURES.items()])


def _broken(table: Matrix) -> list[str]:
    return [f"- {entry.name} ({entry.origin}): {entry.error}" for entry in table.broken]


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join((f"## {title}", "", *lines))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") or "-" for cell in cells) + " |"
