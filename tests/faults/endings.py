"""Faults in the middle of a run: interrupts, kills, workers that flood, and two runs at once."""

from __future__ import annotations

import json
import signal

from attnctl.profile.canonical import encode
from tests.faults.kinds import PROFILE
from tests.faults.row import Place, Row, environ, file, limited_files, plugins
from tests.faults.signals import (
    beside_itself,
    both,
    has_a_point,
    has_child,
    has_compiler,
    has_journal,
    has_worker,
    killed,
    resumed,
    sent,
)
from tests.profile.factory import GRID, profile
from tests.profile.here import profile_of_here

HANGING = "paged(queries=4+1,contexts=20+33,window=7)"
SMOKE = f"smoke --backend HANGS --case '{HANGING}'"
BUILD = "smoke --backend CPU_ATTN --case 'paged()'"
NO_CACHE = environ({"XDG_CACHE_HOME": "{here}/cache", "CC": "gcc"})
SECOND = encode(profile(grid=GRID[5:7])).decode()
PLAIN = "paged(queries=1+1,contexts=3+18)"
TINY = json.dumps(
    {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "torch_dtype": "float32",
    }
)
POINTS = """[
{"phase": "decode", "batch": 1, "context": %d},
{"phase": "decode", "batch": 2, "context": %d}]"""
TUNE = "tune --model {here}/tiny.json --workload {here}/points.json --backend CPU_ATTN --budget 9s"
TUNING = (file("tiny.json", TINY), file("points.json", POINTS % (64, 128)))
LEFT = ("data/attnctl/profiles/",)


WARM = "warm --profile {here}/fits.json"


def warmable(place: Place) -> None:
    """A profile of this processor."""
    (place.folder / "fits.json").write_text(profile_of_here())


ENDINGS: tuple[Row, ...] = (
    Row("SIGINT during smoke", SMOKE, "", 130, (plugins,), run=sent(signal.SIGINT, has_worker)),
    Row("SIGTERM during smoke", SMOKE, "", 143, (plugins,), run=sent(signal.SIGTERM, has_worker)),
    Row("SIGHUP during smoke", SMOKE, "", 129, (plugins,), run=sent(signal.SIGHUP, has_worker)),
    Row("SIGKILL during smoke", SMOKE, "", 137, (plugins,), run=killed(has_worker)),
    Row(
        "SIGINT while smoke builds C++ kernels",
        BUILD,
        "",
        130,
        (NO_CACHE,),
        ("cache/",),
        sent(signal.SIGINT, has_compiler),
    ),
    Row(
        "SIGKILL while smoke builds C++ kernels",
        BUILD,
        "",
        137,
        (NO_CACHE,),
        ("cache/",),
        killed(has_compiler),
    ),
    Row(
        "SIGTERM while smoke compiles for a GPU",
        "smoke --backend TRITON_ATTN --compile-for sm_90 --quick",
        "",
        143,
        (NO_CACHE,),
        ("cache/",),
        sent(signal.SIGTERM, has_child),
    ),
    Row(
        "a kernel that hangs",
        f"{SMOKE} --timeout 3",
        "no answer after 3 s",
        1,
        (plugins,),
    ),
    Row(
        "a worker that prints without end",
        f"smoke --backend FLOODS --case '{PLAIN}' --timeout 3",
        "no answer after 3 s",
        1,
        (plugins,),
    ),
    Row(
        "a worker that prints much",
        f"smoke --backend PRINTS --case '{PLAIN}'",
        "1 of 1 cases passed",
        0,
        (plugins,),
    ),
    Row(
        "a worker that crashes",
        f"smoke --backend CRASHES --case '{HANGING}'",
        "SIGSEGV",
        1,
        (plugins,),
    ),
    Row(
        "a disk that is full by the end, to write what smoke found",
        "smoke --backend SOUND --quick --junit {here}/x.xml",
        "x.xml cannot be written: File too large",
        2,
        (plugins, file("x.xml", "kept"), limited_files(1)),
        answered=True,
    ),
    Row(
        "SIGINT during a tune",
        TUNE,
        "with --resume goes on after the last point",
        130,
        TUNING,
        LEFT,
        resumed(sent(signal.SIGINT, has_journal)),
    ),
    Row(
        "SIGTERM during a tune",
        TUNE,
        "with --resume goes on after the last point",
        143,
        TUNING,
        LEFT,
        resumed(sent(signal.SIGTERM, has_journal)),
    ),
    Row(
        "SIGKILL during a tune",
        TUNE,
        "",
        137,
        TUNING,
        LEFT,
        resumed(killed(has_a_point)),
    ),
    Row("SIGINT during warm", WARM, "", 130, (warmable,), run=sent(signal.SIGINT, has_child)),
    Row("SIGTERM during warm", WARM, "", 143, (warmable,), run=sent(signal.SIGTERM, has_child)),
    Row("SIGKILL during warm", WARM, "", 137, (warmable,), run=killed(has_child)),
    Row(
        "two tunes that write one profile",
        "tune --model {here}/tiny.json --workload {here}/FILE --backend CPU_ATTN --budget 9s",
        "the profile is",
        0,
        (*TUNING, file("others.json", POINTS % (512, 1024))),
        LEFT,
        both("points.json", "others.json"),
    ),
    Row(
        "two imports that write one profile",
        "profile import {here}/FILE",
        "1 shape",
        0,
        (file("one.json", PROFILE), file("two.json", SECOND)),
        LEFT,
        both("one.json", "two.json"),
    ),
    Row(
        "a tune beside one of the same",
        TUNE,
        "another tune of the same is at work on it",
        2,
        TUNING,
        LEFT,
        beside_itself,
    ),
)
