"""Prints the table of faults: fault, command, sentence, exit code."""

from __future__ import annotations

from attnctl.render.plain import clean
from tests.faults.test_faults import TABLE


def main() -> None:
    print("| fault | command | says | exit code |\n| --- | --- | --- | --- |")
    for row in TABLE:
        cells = (row.fault, row.line, row.says or "(silence)")
        shown = " | ".join(clean(cell).replace("|", "\\|") for cell in cells)
        print(f"| {shown} | {row.code} |")


if __name__ == "__main__":
    main()
