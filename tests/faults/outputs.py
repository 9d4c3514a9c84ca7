"""Outputs that cannot be written: told before the work for them, of which nothing is left."""

from __future__ import annotations

from tests.faults.kinds import PROFILE
from tests.faults.row import Row, file, limited_files, plugins, shell

MODEL = "{root}/examples/llama-3.1-8b.json"
CASE = "--case 'paged(queries=1+1,contexts=3+18)'"
SMOKE = f"smoke --backend SOUND {CASE}"
KEPT = file("x.json", PROFILE)
FULL = "standard output cannot be written: No space left on device"
NO_ROOM = "/dev/full cannot be written: No space left on device"


def refused(line: str, says: str) -> Row:
    """An output that is named by its line."""
    fault = f"an output that takes nothing: {line.replace(MODEL, 'MODEL')}"
    return Row(fault, line, says, given=(plugins, KEPT))


def unheard(line: str) -> Row:
    """A command whose standard output is a device that is full; it would fail otherwise later."""
    fault = f"standard output full, before {line.replace(MODEL, 'MODEL')}"
    return Row(fault, line, FULL, given=(plugins, KEPT, shell(redirected=">/dev/full")))


OUTPUTS: tuple[Row, ...] = (
    refused(f"{SMOKE} --junit /dev/full", NO_ROOM),
    refused(f"{SMOKE} --junit {{here}}", "it is a folder; name a file"),
    refused(f"tune -m {MODEL} -o /dev/full", NO_ROOM),
    refused("report -o /dev/full", NO_ROOM),
    # another file is made first, and must not be
    refused("probe --record {here}/t.json --save {here}/no/m.json", "its folder does not exist"),
    refused("probe --record {here}/t.json --save /dev/full", NO_ROOM),
    refused("profile report {here}/x.json -o {here}/p.html --png /dev/full", NO_ROOM),
    refused("profile report {here}/x.json --png -", "a picture is no text: name a file"),
    # what is wrong beside it is told later
    refused("profile export {here}/no/x.json --machine none", "its folder does not exist"),
    refused("profile merge {here}/absent.json -o {here}", "it is a folder; name a file"),
    unheard("smoke --all --device cuda:99"),
    unheard("smoke --self-test --junit x.xml"),
    unheard(f"tune -m {MODEL} --budget soon"),
    unheard("warm --profile {here}/absent.json"),
    unheard("report -o {here}/r.zip"),
    unheard("profile merge {here}/absent.json"),
    unheard("profile export - --machine none"),
    Row(
        "a disk that is full already, to write what smoke finds",
        f"{SMOKE} --junit {{here}}/x.xml",
        "x.xml cannot be written: File too large",
        given=(plugins, file("x.xml", "kept"), limited_files(0)),
    ),
)
