"""A library whose answer never ends, or is cut off, by writing past the answer protocol."""

import os
from pathlib import Path


def answer(how):
    out = max(int(link.name) for link in Path("/proc/self/fd").iterdir() if _is_pipe(link))
    if how == "half":
        os.write(out, b'{"ok": ')
        os._exit(0)
    if how == "silent":
        os._exit(3)
    if how == "garbage":
        os.write(out, b"<html>\n")
        os._exit(0)
    while True:
        os.write(out, b"x" * 65536)


def _is_pipe(link):
    try:
        return str(link.readlink()).startswith("pipe:")
    except OSError:
        return False
