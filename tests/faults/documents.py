"""Faults in what is read: each kind of document, damaged, hostile, or none at all."""

from __future__ import annotations

import json

from tests.faults.kinds import CONFIG, KINDS, WITH_CONFIG, WORKLOAD, of_every_kind
from tests.faults.row import Row, file


def config(fault: str, text: str | bytes, says: str, code: int = 2) -> Row:
    return Row(fault, WITH_CONFIG, says, code, (file("x.json", text),))


def of_kind(place: int, fault: str, old: str, new: str, says: str, code: int = 2) -> Row:
    """A good document of KINDS with one part replaced."""
    kind = KINDS[place]
    assert old in kind.good
    return Row(fault, kind.line, says, code, (file("x.json", kind.good.replace(old, new, 1)),))


HEADS = '"num_attention_heads": 32'
DOCUMENTS: tuple[Row, ...] = (
    *of_every_kind(),
    # config.json: what a reader of JSON lets through
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
    # an earlier report
    of_kind(
        5,
        "an earlier report that names a key twice",
        '"case"',
        '"case":"x",\n"case"',
        "case is given twice, in line 1 and in line 2: keep one of them",
    ),
    of_kind(
        5,
        "an earlier report of a newer schema",
        "smoke/1",
        "smoke/9",
        "write it anew with this attnctl",
    ),
)
