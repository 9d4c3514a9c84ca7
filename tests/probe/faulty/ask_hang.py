"""A library that never returns, with a child of its own that keeps running."""

import os
import time
from pathlib import Path


def answer(pid_file):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    Path(pid_file).write_text(str(os.getpgid(0)))
    time.sleep(60)
