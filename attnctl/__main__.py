"""The console script, and `python -m attnctl`."""

from __future__ import annotations

import gc
import sys

# objects made between two collections: a command makes some ten thousand while it imports, keeps
# nearly all of them, and ends a tenth of a second later
COLLECT_AFTER = 100_000


def main() -> None:
    gc.set_threshold(COLLECT_AFTER)
    from attnctl.cli import run

    sys.exit(run())


if __name__ == "__main__":
    main()
