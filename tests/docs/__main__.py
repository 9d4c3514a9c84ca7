"""Prints the blocks of the pages that are run with less work than they say, or not by the tests."""

from __future__ import annotations

from tests.docs.bounds import BOUNDS, ELSEWHERE


def main() -> None:
    print("| page | block | why | in its place |\n| --- | --- | --- | --- |")
    for row in BOUNDS:
        said = "; ".join(f"`{old.strip()}`: `{new.strip()}`" for old, new in row.said.items())
        print(f"| {row.page} | `{row.has}` | {row.why} | {said or 'a file that fits'} |")
    for one in ELSEWHERE:
        print(f"| {one.page} | `{one.has}` | {one.why} | run by {one.by} |")


if __name__ == "__main__":
    main()
