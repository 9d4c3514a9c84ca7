"""The console script, and `python -m attnctl`."""

from __future__ import annotations

import sys


def main() -> None:
    from attnctl.cli import run

    sys.exit(run())


if __name__ == "__main__":
    main()
