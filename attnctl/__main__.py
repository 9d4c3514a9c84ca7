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

    code = run()
    # else the interpreter, on its way out, looks once more at everything that was ever imported
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
