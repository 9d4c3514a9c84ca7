"""The console script, and `python -m attnctl`."""

from __future__ import annotations

import gc
import os
import sys

# objects made between two collections: a command makes some ten thousand while it imports, keeps
# nearly all of them, and ends a tenth of a second later
COLLECT_AFTER = 100_000


def main() -> None:
    try:
        code = _run()
    except KeyboardInterrupt:  # during the imports, which take most of a short command's time
        from attnctl.exits import Exit

        code = Exit.INTERRUPTED
    sys.exit(code)


def _run() -> int:
    gc.set_threshold(COLLECT_AFTER)
    _fill_closed_streams()
    from attnctl.cli import run

    code = run()
    # else the interpreter, on its way out, looks once more at everything that was ever imported
    gc.freeze()
    return code


def _fill_closed_streams() -> None:
    """Keeps files that are opened later from becoming standard input, output or error."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115  (lives as long as the process)


if __name__ == "__main__":
    main()
