"""A library that prints on every stream, then answers."""

import os
import sys


def answer(*args):
    print("Unable to find libamd_smi.so")
    sys.stdout.flush()
    os.write(1, b"more noise\n" * 10_000)
    os.write(2, b"and on stderr\n" * 10_000)
    return {"args": list(args), "mask": os.environ.get("CUDA_VISIBLE_DEVICES")}
