"""The screens of `attnctl list` and `attnctl explain`."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.codes import GROUPS, Meaning
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Style, Table, View
from attnctl.support.table import Matrix, Row

COLUMNS = (
    *("backend", "computes", "runs on", "devices", "head sizes", "kernel", "installed", "usable"),
)
SPARE = ("head sizes", "kernel", "devices")
STYLES: dict[str, Style] = {"yes": "good", "unknown": "warn"}


def support_view(table: Matrix) -> View:
    """One row per backend, then declarations that did not load."""
    rows = tuple(_short(row) for row in table.rows)
    return (
        Table(COLUMNS, rows, spare=tuple(map(COLUMNS.index, SPARE))),
        *_broken(table),
        Line(""),
        *_machine(table),
        Line("all of one: attnctl list NAME; the default orders: attnctl list --markdown"),
    )


def _machine(table: Matrix) -> Iterator[Block]:
    if table.machine:
        there = sum(row.usable == "yes" for row in table.rows)
        yield Line(f"usable on {table.machine}: {there} of {len(table.rows)} backends")


def _short(row: Row) -> tuple[Cell, ...]:
    return (
        row.name,
        ", ".join(row.ops),
        ", ".join(row.platforms),
        "; ".join(row.devices).replace("compute capability", "CC"),
        "a state, no cache" if row.is_ssm else row.head_sizes,
        _kernel(row),
        Mark(row.installed, STYLES.get(row.installed, "")),
        Mark(row.usable, STYLES.get(row.usable, "")),
    )


def _kernel(row: Row) -> Cell:
    origin = "" if row.origin == "built-in" else f", by {row.origin}"
    return Mark(f"{row.kernel}{origin}", "warn" if row.kernel == "planned" else "")


def _broken(table: Matrix) -> Iterator[Block]:
    if table.broken:
        yield Heading("declarations that did not load")
        rows = tuple((Mark(one.name, "bad"), one.origin, one.error) for one in table.broken)
        yield Table(("name", "from", "error"), rows)


def backend_view(table: Matrix) -> View:
    """All of one backend: what its rules accept, its features, and where it stands."""
    blocks: list[Block] = []
    for row in table.rows:
        blocks += [Heading(f"{row.name}: {row.summary}"), Table((), tuple(_facts(row)))]
        lacks = [name for name, have in row.features.items() if have == "no"]
        if lacks:
            blocks.append(Line(Mark(f"lacks: {', '.join(lacks)}", "dim")))
        blocks += _orders(table, row.name)
    return tuple(blocks)


def _facts(row: Row) -> Iterator[tuple[Cell, ...]]:
    features = [
        name if have == "yes" else f"{name} ({have})"
        for name, have in row.features.items()
        if have != "no"
    ]
    facts = {
        "computes": ", ".join(row.ops),
        "runs on": ", ".join(row.platforms),
        "devices": "; ".join(row.devices),
        "packages": "; ".join(row.packages),
        "head sizes": row.head_sizes,
        "dtypes": row.dtypes,
        "cache dtypes": row.kv_cache_dtypes,
        "block sizes": row.blocks,
        "keeps": "a fixed-size state per sequence" if row.is_ssm else "",
        "features": ", ".join(features),
    }
    yield from ((Mark(label, "dim"), text) for label, text in facts.items() if text)
    yield (Mark("kernel", "dim"), _kernel(row))
    if row.installed:
        yield (Mark("installed", "dim"), Mark(row.installed, STYLES.get(row.installed, "")))
        why = "; ".join(row.not_usable)
        text = f"{row.usable}: {why}" if why else row.usable
        yield (Mark("usable", "dim"), Mark(text, STYLES.get(row.usable, "")))
    if row.rivals:
        yield (Mark("rivals", "dim"), f"{', '.join(row.rivals)} (where installed, by name)")


def _orders(table: Matrix, name: str) -> Iterator[Block]:
    for order in table.orders:
        if name in order.names:
            where = f"default order on {order.platform}, {order.op}"
            yield Line(f"{where}: {', '.join(order.names)}")
            yield from (Line(f"but {rule}", indent=2) for rule in order.rules)


def codes_view() -> View:
    """Every code with its title, by group."""
    blocks: list[Block] = []
    for title, rows in GROUPS.items():
        table = Table((), tuple((code, row[0]) for code, row in rows.items()), indent=2)
        blocks += [Heading(title), table]
    return (*blocks, Line(""), Line("more of one: attnctl explain CODE"))


def meaning_view(found: Meaning) -> View:
    """One code: what it is about and what to do."""
    rows = (("about", found.about), ("to do", found.advice))
    return (
        Heading(f"{found.code}: {found.title}"),
        Table((), tuple((Mark(label, "dim"), text) for label, text in rows if text)),
    )
