"""Prints what one pick costs, in microseconds, and what reading a profile costs, in milliseconds.

The profile is invented: a grid of 60 points for each of four models. The exit code is 1 where a
pick takes more than its budget.

    python benchmarks/profile_pick.py
"""

from __future__ import annotations

import sys
import timeit
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnctl.profile.canonical import encode
from attnctl.profile.document import parse
from attnctl.profile.pick import Picker
from tests.profile.factory import profile

BUDGET_US = 5.0
MODELS = ("llama-3.1-8b", "gpt-oss-20b", "deepseek-v3", "qwen3-next-80b-a3b")
GRID = tuple(
    (phase, batch, context, query)
    for phase, query in (("decode", 1), ("prefill", 512))
    for batch in (1, 4, 16, 64, 256)
    for context in (256, 1024, 4096, 16384, 65536, 131072)
)


def main() -> int:
    data = encode(profile(*MODELS, grid=GRID))
    read = min(timeit.repeat(lambda: parse(data, "benchmark"), number=1, repeat=20))
    document = parse(data, "benchmark")
    entry = document.entries[-1]
    table = Picker(document).table(entry.shape, entry.order)
    asked = [
        (phase, batch, context)
        for phase in ("decode", "prefill")
        for batch in (1, 3, 24, 100, 1000)
        for context in (1, 300, 5000, 100_000)
    ]
    worst = max(
        min(timeit.repeat(lambda one=one: table.pick(*one), number=1000, repeat=7)) / 1000
        for one in asked
    )
    print(f"a profile of {len(data) >> 10} KiB: read in {read * 1e3:.1f} ms")
    print(f"a pick among {len(entry.points)} points: {worst * 1e6:.2f} us at worst")
    return int(worst * 1e6 > BUDGET_US)


if __name__ == "__main__":
    sys.exit(main())
