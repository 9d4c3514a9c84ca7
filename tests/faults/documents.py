"""Faults in what is read: each kind of document, damaged, hostile, or none at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from attnctl.profile.canonical import encode
from tests.commands.running import LLAMA, ROOT
from tests.faults.row import Given, Row, file, folder, sparse
from tests.profile.factory import GRID, profile

CONFIG = (ROOT / LLAMA).read_text()
MACHINE = (ROOT / "profiles" / "machines" / "h200.json").read_text()
TAPE = (ROOT / "tests" / "machines" / "nvidia-no-driver.tape.json").read_text()
PROFILE = encode(profile(grid=GRID[:2])).decode()
WORKLOAD = '[{"phase": "decode", "batch": 1, "context": 64}]'

SELECT = "select --model {root}/examples/llama-3.1-8b.json"
WITH_CONFIG = "select --model {here}/x.json --machine h200"
TUNE = "tune --model {root}/examples/llama-3.1-8b.json --device 99 -o {here}/new.json"


class Kind(NamedTuple):
    """A document: its name, a good one, the command that reads {here}/x.json, and its refusal.

    refusal: how a file that is none of it is refused; depth: how one of too many brackets is.
    """

    name: str
    good: str
    line: str
    refusal: str
    depth: str
    opening: str = '{"x":'


KINDS = (
    Kind("config", CONFIG, WITH_CONFIG, "is not JSON: ", "is nested too deeply to be a config"),
    Kind("machine", MACHINE, f"{SELECT} --machine {{here}}/x.json", ": not JSON (", "recursion"),
    Kind("tape", TAPE, "probe --replay {here}/x.json", ": not a tape: ", "recursion"),
    Kind(
        "profile",
        PROFILE,
        f"{SELECT} --machine h100 --profile {{here}}/x.json",
        ": not a profile: ",
        "recursion",
    ),
    Kind(
        "workload",
        WORKLOAD,
        f"{TUNE} --workload {{here}}/x.json",
        ": not a workload: ",
        ": not a workload: ",
        "",
    ),
    Kind(
        "earlier report",
        "",
        "smoke --backend TRITON_ATTN --compile-for sm_90 --list --baseline {here}/x.json",
        " is no report of smoke (",
        "recursion",
    ),
)


def of_every_kind() -> Iterator[Row]:
    """What no document may be, asked of each kind."""
    for kind in KINDS:
        good = kind.good or "{}"
        refused: tuple[tuple[str, str, Given], ...] = (
            ("of 1 GB", "is larger than 16 MiB; that is no ", sparse("x.json")),
            ("that is empty", kind.refusal, file("x.json", "")),
            ("that is a program", kind.refusal, file("x.json", b"\x7fELF\2\1\1\0" * 99)),
            ("cut short", kind.refusal, file("x.json", (good[:-3] + "{").rstrip("}]\n "))),
            ("of 100,000 brackets", kind.depth, file("x.json", kind.opening + "[" * 100_000)),
            ("that is a text", "x.json", file("x.json", '"config"')),
            ("that is a folder", "x.json", folder("x.json")),
            (
                "in UTF-16",
                ": this is UTF-16 text, and JSON is UTF-8: save it as UTF-8",
                file("x.json", good.encode("utf-16")),
            ),
        )
        for fault, says, what in refused:
            yield Row(f"a {kind.name} {fault}", kind.line, says, given=(what,))
        endless = kind.line.replace("{here}/x.json", "/dev/zero")
        yield Row(f"a {kind.name} without an end", endless, "/dev/zero is larger than 16 MiB")
        yield Row(f"a {kind.name} that is not there", kind.line, "x.json")


def config(fault: str, text: str | bytes, says: str, code: int = 2) -> Row:
    return Row(fault, WITH_CONFIG, says, code, (file("x.json", text),))


def of_kind(place: int, fault: str, old: str, new: str, says: str, code: int = 2) -> Row:
    """A good document of KINDS with one part replaced."""
    kind = KINDS[place]
    assert old in kind.good
    return Row(fault, kind.line, says, code, (file("x.json", kind.good.replace(old, new, 1)),))


HEADS = '"num_attention_heads": 32'
DEEP = '"x": ' + "[" * 90_000 + "]" * 90_000
DOCUMENTS: tuple[Row, ...] = (
    *of_every_kind(),
    # config.json: what a reader of JSON lets through
    of_kind(
        0, "a config with NaN for a count", "32,", "NaN,", "is nan; a whole number is expected"
    ),
    of_kind(0, "a config with Infinity for a count", "32,", "Infinity,", "is inf; a whole number"),
    of_kind(0, "a config with a negative count", "32,", "-32,", "is -32; a whole number from 0"),
    of_kind(
        0, "a config with a count of 5000 digits", "32,", "9" * 5000 + ",", "holds a number th"
    ),
    of_kind(
        0, "a config with a count of 30 digits", "32,", "9" * 30 + ",", "a whole number from 0"
    ),
    of_kind(
        0, "a config with a text for a count", "32,", '"32",', 'is "32"; a whole number is exp'
    ),
    of_kind(
        0, "a config with layers by the billion", "32,", "2147483648,", "a whole number from 0 to"
    ),
    of_kind(
        0,
        "a config that names a key twice",
        HEADS,
        f"{HEADS},\n{HEADS}",
        "is given twice, in line 8 and in line 9: the last one counts",
        0,
    ),
    of_kind(0, "a config with a byte-order mark", "{", "\ufeff{", "LlamaForCausalLM, 32 layers", 0),
    of_kind(0, "a config in Latin-1", "", "", "", 0)._replace(
        given=(file("x.json", CONFIG.replace("llama", "ll\xe4ma").encode("latin-1")),),
        says="is not UTF-8 text (byte ",
        code=2,
    ),
    config("a config that is a list", "[1, 2]", "holds no JSON object; a config.json is one"),
    config(
        "a config with nothing in it", "{}", "no number of attention heads for a model of no st"
    ),
    Row(
        "a folder without a config", "select --model {here} --machine h200", "has no config.json; "
    ),
    Row(
        "a sidecar that is none",
        "select --model {here} --machine h200",
        "hf_quant_config.json is not JSON",
        given=(file("config.json", CONFIG), file("hf_quant_config.json", "{")),
    ),
    # machine files
    of_kind(
        1, "a machine with NaN", "132", "NaN", ": not JSON (JSON is malformed: invalid character"
    ),
    of_kind(
        1,
        "a machine that names a key twice",
        '"name"',
        '"name": "x",\n"name"',
        "name is given twice, in line 15 and in line 16: keep one of them",
    ),
    of_kind(
        1, "a machine with a wrong type", "132", '"132"', "expected 'int | null', got 'str': cor"
    ),
    of_kind(
        1, "a machine of a newer schema", "machine/1", "machine/9", "is newer than this attnctl"
    ),
    of_kind(
        1,
        "a machine file that is a tape",
        "attnctl.machine/1",
        "attnctl.tape/1",
        "is not a machine file (wanted",
    ),
    # tapes
    of_kind(
        2,
        "a tape that names a key twice",
        '"ask"',
        '"ask":["x"],\n"ask"',
        "is given twice, in line 2 and in line 3: keep one of them",
    ),
    of_kind(
        2,
        "a tape of a newer schema",
        "tape/1",
        "tape/9",
        "Record it again with: attnctl probe --re",
    ),
    Row(
        "a tape that lies about every file",
        "probe --replay {here}/x.json",
        "this tape: cpu, unknown processor",
        0,
        (
            file(
                "x.json",
                json.dumps(
                    {
                        "schema": "attnctl.tape/1",
                        "entries": [
                            {"ask": [op, path], "ok": lie}
                            for op in ("read", "list", "access", "link", "stat")
                            for path in (
                                "/proc/cpuinfo",
                                "/proc/meminfo",
                                "/sys/bus/pci/devices",
                                "/dev/nvidiactl",
                            )
                            for lie in ([[1]] if op == "read" else ["x"])
                        ]
                        + [{"ask": ["uname"], "ok": 3}, {"ask": ["affinity"], "ok": "all"}],
                    }
                ),
            ),
        ),
    ),
    Row(
        "a tape on which everything failed",
        "probe --replay {here}/x.json",
        "this tape: cpu, unknown processor",
        0,
        (
            file(
                "x.json", '{"schema": "attnctl.tape/1", "entries": [], "default": ["failed", "x"]}'
            ),
        ),
    ),
    # profiles and workloads
    of_kind(
        3,
        "a profile that names a key twice",
        '"name"',
        '"name": "x",\n"name"',
        "name is given twice, in line 3 and in line 4: keep one of them",
    ),
    of_kind(
        3, "a profile with NaN", '"batch": 1', '"batch": NaN', ": not a profile: JSON is malformed"
    ),
    of_kind(
        3, "a profile of a newer schema", "profile/1", "profile/9", "upgrade attnctl, or take a pr"
    ),
    of_kind(
        3,
        "a profile with one entry that does not read",
        '"points"',
        '"pints"',
        "entries[0] is left out: Object missing required field `points`",
        0,
    ),
    of_kind(
        4,
        "a workload that names a key twice",
        '"batch"',
        '"batch": 2, "batch"',
        "[0].batch is given twice in line 1, at columns",
    ),
    of_kind(
        4,
        "a workload of no sequences",
        '"batch": 1',
        '"batch": 0',
        "[0].batch is 0: must be from 1 to",
    ),
    of_kind(
        4,
        "a workload with a weight that is none",
        "64}",
        '64, "weight": -1}',
        "weight is -1.0: must be",
    ),
    of_kind(
        4,
        "a workload of no points",
        WORKLOAD,
        "[]",
        "it lists no points, so there is nothing to ti",
    ),
)
