"""Faults of where things are kept: no home, one that may not be written or read, a full disk."""

from __future__ import annotations

from tests.faults.kinds import PROFILE
from tests.faults.row import Row, environ, file, folder, limited_files, machine, shell
from tests.faults.streams import PICKED, SELECT

MODEL = "{root}/examples/llama-3.1-8b.json"
KEPT = file("x.json", PROFILE)
IMPORT = "profile import {here}/x.json"
TUNE = f"tune --model {MODEL} --backend CPU_ATTN"
SAVE = "probe --machine h200 --save"
NO_HOME = environ({"HOME": None, "XDG_DATA_HOME": None})
UNSET = "no folder for profiles: neither XDG_DATA_HOME nor HOME is set; set one of them"
GONE = (folder("gone"), shell("cd {here}/gone && rmdir {here}/gone;"))
NO_FOLDER = "cannot be written: its folder does not exist"
FROZEN = machine(frozen="{here}")
READ_ONLY = "data/attnctl/profiles cannot be written: Read-only file system"
# no file may grow: the disk is full at its first byte
FULL = limited_files(0)
TOO_LARGE = "cannot be written: File too large"


def full(fault: str, line: str, says: str, leaves: tuple[str, ...] = ()) -> Row:
    """On a full disk; what was there before stays whole."""
    return Row(f"a full disk, {fault}", line, says, given=(KEPT, FULL), leaves=leaves)


HOMES: tuple[Row, ...] = (
    Row("no HOME, to read", SELECT, PICKED, 0, (NO_HOME,)),
    Row("no HOME, to import a profile", IMPORT, UNSET, given=(KEPT, NO_HOME)),
    Row("no HOME, to tune", TUNE, UNSET, given=(NO_HOME,)),
    Row(
        "a HOME that is a file",
        IMPORT,
        "x.json/attnctl/profiles cannot be written: ",
        given=(KEPT, environ({"XDG_DATA_HOME": "{here}/x.json"})),
    ),
    Row("a HOME that is not absolute", SELECT, PICKED, 0, (environ({"XDG_DATA_HOME": "x"}),)),
    Row("a read-only home, to read", SELECT, PICKED, 0, (FROZEN,)),
    Row("a read-only home, to import a profile", IMPORT, READ_ONLY, given=(KEPT, FROZEN)),
    Row("a read-only home, to tune", TUNE, READ_ONLY, given=(FROZEN,)),
    Row(
        "a read-only home, to save a machine",
        f"{SAVE} {{here}}/m.json",
        "m.json cannot be written: Read-only file system",
        given=(FROZEN,),
    ),
    Row("a home that may not be read", SELECT, PICKED, 0, (machine(denied="{here}"),)),
    Row(
        "a file that may not be read",
        "select --model {here}/x.json --machine h200",
        "x.json cannot be read: Permission denied",
        given=(KEPT, machine(denied="{here}/x.json")),
    ),
    Row(
        "a working folder that is gone",
        SELECT,
        PICKED,
        0,
        GONE,
    ),
    Row(
        "a working folder that is gone, to write what smoke finds",
        "smoke --backend CPU_ATTN --case 'paged()' --junit x.xml",
        f"x.xml {NO_FOLDER}",
        given=GONE,
    ),
    Row("a working folder that is gone, to tune", f"{TUNE} -o x.json", NO_FOLDER, given=GONE),
    Row("a working folder that is gone, to report", "report", NO_FOLDER, given=GONE),
    Row(
        "a working folder that is gone, to merge profiles",
        "profile merge {here}/x.json {here}/x.json -o y.json",
        "y.json cannot be written: its folder does not exist",
        given=(KEPT, *GONE),
    ),
    full("to save a machine", f"{SAVE} {{here}}/x.json", f"x.json {TOO_LARGE}"),
    full("to record a tape", "probe --record {here}/x.json", f"x.json {TOO_LARGE}"),
    full("to import a profile", IMPORT, TOO_LARGE, ("data/attnctl/profiles/.lock",)),
    full(
        "to merge profiles",
        "profile merge {here}/x.json {here}/x.json -o {here}/x.json",
        f"x.json {TOO_LARGE}",
    ),
    full("to draw a page", "profile report {here}/x.json -o {here}/y.html", f"y.html {TOO_LARGE}"),
    full("to write a bug report", f"report -m {MODEL} -o {{here}}/x.json", f"x.json {TOO_LARGE}"),
    full("to begin a tune", TUNE, f".journal {TOO_LARGE}", ("data/attnctl/profiles/",)),
    full("to name a tune's profile", f"{TUNE} -o {{here}}/new.json", f"new.json {TOO_LARGE}"),
    Row(
        "a device that is full",
        f"{SAVE} /dev/full",
        "/dev/full cannot be written: No space left on device",
    ),
    Row(
        "a folder that is not there, to save a machine",
        f"{SAVE} {{here}}/no/x.json",
        "no/x.json cannot be written: ",
    ),
    Row("a folder in the place of the file", f"{SAVE} {{here}}", "cannot be written: "),
)
