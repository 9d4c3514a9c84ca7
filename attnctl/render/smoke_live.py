"""A run of smoke while it runs: on standard error, where that is a terminal, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnctl.smoke.planning import Plan
from attnctl.smoke.trials import BAD, Trial

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 12
"""Rows of the table: what is done first gives way to what is running."""


class LiveTable:
    """A row a plan, a bar for the whole with the time that is left. Use as a context manager.

    console: None for standard error; rich is imported only where it is a terminal. shown: False
    where another line says how far the run is.
    """

    def __init__(
        self, plans: Sequence[Plan], console: Console | None = None, *, shown: bool = True
    ) -> None:
        self._rows = [_Row(plan) for plan in plans]
        self._live: Any = None
        if not shown or (console is None and not _is_terminal()):
            return
        from rich.console import Console
        from rich.live import Live

        self._bar, self._task = _bar(sum(len(plan.runnable) for plan in plans))
        self._live = Live(
            console=console or Console(stderr=True),
            get_renderable=self._drawn,
            refresh_per_second=8,
            transient=True,
        )

    def __enter__(self) -> LiveTable:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, place: int, trial: Trial) -> None:
        """A trial of the plan at this place has ended."""
        if self._live is None or trial.status in ("unsupported", "unknown"):
            return
        row = self._rows[place]
        row.done += 1
        row.bad += trial.status in BAD
        self._bar.advance(self._task)

    def _drawn(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("backend", "on", "cases", "bad"):
            table.add_column(name)
        for row in self._shown():
            bad = Text(str(row.bad) if row.bad else "", style="red")
            table.add_row(row.backend, row.device, f"{row.done}/{row.total}", bad)
        return Group(table, self._bar)

    def _shown(self) -> list[_Row]:
        """The rows that fit: those with a bad case, then those that are not done yet."""
        rows = [row for row in self._rows if row.total]
        if len(rows) <= MOST_ROWS:
            return rows
        ranked = sorted(rows, key=lambda row: (not row.bad, row.done == row.total))[:MOST_ROWS]
        return [row for row in rows if row in ranked]


class _Row:
    def __init__(self, plan: Plan) -> None:
        self.backend, self.device = plan.backend, plan.device
        self.total, self.done, self.bad = len(plan.runnable), 0, 0


def _bar(total: int) -> tuple[Any, Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    bar = Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(elapsed_when_finished=True)
    )
    return bar, bar.add_task("", total=total)


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False
