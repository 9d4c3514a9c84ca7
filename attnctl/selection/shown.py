"""The forms of a selection's answer: what each can show, checked beforehand; and the showing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attnctl.exits import InputError

if TYPE_CHECKING:
    from attnctl.render.output import Output
    from attnctl.selection.report import SelectReport


def check_shown(
    asked: Sequence[str], many: bool, vllm_args: bool, json: bool, csv: bool = False
) -> None:
    """InputError for an option that the form of the answer would leave out.

    asked: options that add to a screen (--explain, --what-if). many: several models or machines.
    """
    forms = {"--vllm-args": vllm_args, "--json": json, "--csv": csv}
    if csv and sum(forms.values()) > 1:
        other = next(name for name, given in forms.items() if given and name != "--csv")
        raise InputError(f"--csv and {other} are two forms of one answer: give one")
    if csv and asked:
        raise InputError(f"{asked[0]}: --csv has no column for it: leave out one of the two")
    if vllm_args and json:
        raise InputError("--vllm-args: prints flags, not JSON: leave out one of it and --json")
    if asked and vllm_args:
        raise InputError(f"{asked[0]}: --vllm-args prints flags only: leave out one of the two")
    if asked and many and not json:
        where = "one model on one machine: give one of each, or --json"
        raise InputError(f"{asked[0]}: is shown for {where}")


def show(
    reports: tuple[SelectReport, ...],
    output: Output,
    explained: str | None,
    json: bool,
    models: int,
    left_out: tuple[str, ...],
) -> int:
    """The exit code of one answer, or of many as one table, once they are shown."""
    if len(reports) == 1 and not left_out:
        (report,) = reports
        if json:
            output.json(report)
        else:
            from attnctl.render.select import select_view

            output.view(select_view(report, explained))
        return report.exit_code
    from attnctl.selection.report import sweep

    many = sweep(reports, models, left_out)
    if json:
        output.json(many)
    else:
        from attnctl.render.sweep import sweep_view

        output.view(sweep_view(many))
    return many.exit_code


def show_arguments(
    reports: tuple[SelectReport, ...], output: Output, models: int, left_out: tuple[str, ...]
) -> int:
    """One line per answer; what no flag can say goes to standard error, and of which it is said."""
    from attnctl.render.labels import by_machine, placed
    from attnctl.render.output import remark

    for where, report in placed(by_machine(reports, models)):
        if report.engine is not None:
            output.text(" ".join(report.engine.arguments) + "\n")
            for said in _beside(report):
                remark(said if len(reports) == 1 and not left_out else f"{where}: {said}")
    for said in left_out:
        remark(said)
    worst = max(report.exit_code for report in reports)
    return max(worst, 1) if left_out else worst


def _beside(report: SelectReport) -> Iterator[str]:
    """What an engine's flags do not say of its answer."""
    from attnctl.render.block_sizes import block_notes

    if report.engine is None:
        return
    for name, value in report.engine.environment.items():
        yield f"with {name}={value} in its environment"
    yield from (*report.engine.errors, *report.unmet, *report.engine.notes, *block_notes(report))


def show_rows(reports: tuple[SelectReport, ...], output: Output, left_out: tuple[str, ...]) -> int:
    """A table for a spreadsheet; machines that could not be asked go to standard error."""
    from attnctl.render.csv_text import decisions_csv
    from attnctl.render.output import remark

    output.text(decisions_csv(reports))
    for said in left_out:
        remark(said)
    worst = max((report.exit_code for report in reports), default=0)
    return max(worst, 1) if left_out else worst
