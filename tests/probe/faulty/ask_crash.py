"""A library that dies of a wild pointer."""

import os
import signal


def answer():
    os.kill(os.getpid(), signal.SIGSEGV)
