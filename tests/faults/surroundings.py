"""Faults of what is around: streams, terminals, locales, homes, disks, and a machine that lies."""

from __future__ import annotations

from pathlib import Path

from tests.commands.running import LLAMA, ROOT
from tests.faults.documents import CONFIG, PROFILE
from tests.faults.row import Ended, Place, Row, environ, file, folder, library, machine, once, shell

MODEL = "{root}/examples/llama-3.1-8b.json"
SELECT = f"select --model {MODEL} --machine h200"
BAD = f"{SELECT} --tp 0"
PICKED = "h200: FLASH_ATTN"
HELD = "no output, and the exit code of wrong usage"
SMALL = shell("ulimit -f 0;")
"""No file may grow: the disk is full at its first byte."""
KEPT = file("x.json", PROFILE)
NODE = {"/dev/nvidiactl": ""}
NVML = "probe"
SLOW = "import time\ntime.sleep(600)\n"


def on_a_terminal(place: Place, line: str) -> Ended:
    """On a pseudo-terminal of no size, by util-linux's script: both streams are its screen."""
    place.redirected += " 2>&1"
    import pty
    import os
    import subprocess

    leader, follower = pty.openpty()
    process = subprocess.Popen(
        place.command(line),
        cwd=place.folder,
        env=place.environ,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    said = b""
    try:
        while chunk := os.read(leader, 65536):
            said += chunk
    except OSError:  # Linux's word for a terminal that nobody holds any more
        pass
    os.close(leader)
    return Ended(process.wait(), said.decode("utf-8", "replace"), "")


def reader_who_leaves(place: Place, line: str) -> Ended:
    """Standard output is closed before anything was written to it."""
    process = place.start(line)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    if process.stdin is not None:
        process.stdin.close()
    return Ended(process.wait(), "", said.decode())


STREAMS = (
    Row("standard output closed", f"{SELECT} --json", "standard output is closed, so that no answer can be written", given=(shell(redirected=">&-"),)),
    Row("standard output closed, for help", "--help", "standard output is closed", given=(shell(redirected=">&-"),)),
    Row("standard output full", f"{SELECT} --json", "standard output cannot be written: No space left on device", given=(shell(redirected=">/dev/full"),)),
    Row("standard output full, for help", "--help", "standard output cannot be written", given=(shell(redirected=">/dev/full"),)),
    Row("standard output full, for a command's help", "select --help", "standard output cannot be written", given=(shell(redirected=">/dev/full"),)),
    Row("standard output full, for the version", "--version", "standard output cannot be written", given=(shell(redirected=">/dev/full"),)),
    Row("standard input closed", "select --model - --machine h200", "standard input is closed", given=(shell(redirected="<&-"),)),
    Row("standard input empty", "select --model - --machine h200", "standard input is not JSON"),
    Row("standard input endless", "select --model - --machine h200", "standard input is larger than 16 MiB", given=(shell(redirected="</dev/zero"),)),
    Row("standard error closed beside a fault", BAD, "", given=(shell(redirected="2>&-"),)),
    Row("standard error full beside a fault", BAD, "", given=(shell(redirected="2>/dev/full"),)),
    Row("standard error closed beside an answer", f"{SELECT} --json", '"attnctl.select/1"', 0, (shell(redirected="2>&-"),)),
    Row("all streams closed", f"{SELECT} --json", "", given=(shell(redirected="<&- >&- 2>&-"),)),
    Row("a reader who leaves", f"{SELECT} --json", "", 0, run=reader_who_leaves),
    Row("no terminal", SELECT, PICKED, 0, (environ({"TERM": None}),)),
    Row("a terminal of no size", SELECT, "FLASH_ATTN", 0, (environ({"TERM": "dumb"}),), run=on_a_terminal),
    Row("a terminal of no columns", SELECT, "FLASH_ATTN", 0, (environ({"TERM": "dumb", "COLUMNS": "-7"}),), run=on_a_terminal),
    Row("a terminal of many columns", SELECT, "FLASH_ATTN", 0, (environ({"TERM": "dumb", "COLUMNS": "99999"}),), run=on_a_terminal),
)
ODD = file("x.json", CONFIG.replace('"llama"', '"ll\u00e4ma \u6a21"'))
LOCALES = (
    Row("the locale C", SELECT, PICKED, 0, (environ({"LC_ALL": "C"}),)),
    Row("the locale C without UTF-8, and a path that it cannot show", "select --model {here}/m\u00e4.json --machine h200", PICKED, 0, (environ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}), file("m\u00e4.json", CONFIG))),
    Row("no locale", SELECT, PICKED, 0, (environ({"LC_ALL": None, "LANG": None, "LC_CTYPE": None}),)),
    Row("a locale that is not installed", SELECT, PICKED, 0, (environ({"LC_ALL": "xx_XX.ISO-8859-15"}),)),
    Row("Latin-1 on the streams, and a model type that it lacks", "select --model {here}/x.json --machine h200", PICKED, 0, (environ({"PYTHONIOENCODING": "latin-1"}), ODD)),
    Row("Latin-1 on the streams, and a fault in what it lacks", "select --model {here}/\u6a21.json --machine h200", "does not exist; name a config.json", given=(environ({"PYTHONIOENCODING": "latin-1"}),)),
)
HOMES = (
    Row("no HOME, to read", SELECT, PICKED, 0, (environ({"HOME": None, "XDG_DATA_HOME": None}),)),
    Row("no HOME, to write", "profile import {here}/x.json", "no folder for profiles: neither XDG_DATA_HOME nor HOME is set; set one of them", given=(KEPT, environ({"HOME": None, "XDG_DATA_HOME": None}))),
    Row("no HOME, to tune", f"tune --model {MODEL}", "no folder for profiles: neither XDG_DATA_HOME nor HOME is set; set one of them", given=(environ({"HOME": None, "XDG_DATA_HOME": None}),)),
    Row("a HOME that is a file", "profile import {here}/x.json", "x.json/attnctl/profiles cannot be written: ", given=(KEPT, environ({"XDG_DATA_HOME": "{here}/x.json"}))),
    Row("a read-only home, to read", SELECT, PICKED, 0, (machine(frozen="{here}"),)),
    Row("a read-only home, to import", "profile import {here}/x.json", "data/attnctl/profiles cannot be written: Read-only file system", given=(KEPT, machine(frozen="{here}"))),
    Row("a read-only home, to save", "probe --machine h200 --save {here}/m.json", "m.json cannot be written: Read-only file system", given=(machine(frozen="{here}"),)),
    Row("a read-only home, to tune", f"tune --model {MODEL}", "data/attnctl/profiles cannot be written: Read-only file system", given=(machine(frozen="{here}"),)),
    Row("a home that may not be read", SELECT, PICKED, 0, (machine(denied="{here}"),)),
    Row("a working folder that is gone", SELECT, PICKED, 0, (folder("gone"), shell("cd {here}/gone && rmdir {here}/gone;"))),
)
DISKS = (
    Row("a full disk, to save a machine", "probe --machine h200 --save {here}/x.json", "x.json cannot be written: File too large", given=(KEPT, SMALL)),
    Row("a full disk, to record a tape", "probe --record {here}/x.json", "x.json cannot be written: File too large", given=(KEPT, SMALL)),
    Row("a full disk, to import a profile", "profile import {here}/x.json", "cannot be written: File too large", given=(KEPT, SMALL), leaves=("data/attnctl/profiles/.lock",)),
    Row("a full disk, to merge profiles", "profile merge {here}/x.json {here}/x.json -o {here}/x.json", "x.json cannot be written: File too large", given=(KEPT, SMALL)),
    Row("a full disk, to draw a page", "profile report {here}/x.json -o {here}/y.html", "y.html cannot be written: File too large", given=(KEPT, SMALL)),
    Row("a full disk, to write a bug report", f"report --model {MODEL} -o {{here}}/x.json", "x.json cannot be written: File too large", given=(KEPT, SMALL)),
    Row("a device that is full, to save a machine", "probe --machine h200 --save /dev/full", "/dev/full cannot be written: No space left on device"),
    Row("a folder that does not exist, to save a machine", "probe --machine h200 --save {here}/no/x.json", "no/x.json cannot be written: "),
    Row("a folder in the place of the file", "probe --machine h200 --save {here}", "cannot be written: "),
)
MACHINES = (
    Row("an NVML that sleeps", "probe", "NVML did not answer in time: ask_nvml: no answer within 2 s", 0, (machine(NODE), library("pynvml", SLOW))),
    Row("an NVML that crashes", "probe", "ask_nvml: ended by SIGABRT", 0, (machine(NODE), library("pynvml", "import os\nos.abort()\n"))),
    Row("an NVML that ends the process", "probe", "ask_nvml", 0, (machine(NODE), library("pynvml", "import os\nos._exit(3)\n"))),
    Row("an NVML that floods its streams", "probe", "NVML did not answer in time", 0, (machine(NODE), library("pynvml", "import os\nwhile True: os.write(2, b'x' * 65536)\n"))),
    Row("an NVML that raises KeyError", "probe", "KeyError: 'nvml'", 0, (machine(NODE), library("pynvml", "raise KeyError('nvml')\n"))),
    Row("an NVML that is a text", "probe", "SyntaxError", 0, (machine(NODE), library("pynvml", "not Python\n"))),
    Row("an NVML whose every call lies", "probe", "NVIDIA", 0, (machine(NODE), library("pynvml", "def __getattr__(name):\n    if name.startswith('__'): raise AttributeError(name)\n    if name == 'NVMLError': return ValueError\n    return lambda *a, **k: [-1, None, {'x': name}]\n"))),
    Row("a file of sysfs without an end", "probe", "this machine: cpu", 0, (machine(links={"/sys/module/nvidia/version": "/dev/zero", "/proc/cpuinfo": "/dev/zero"}),)),
    Row("a file of sysfs that is a pipe", "probe", "this machine: cpu", 0, (machine({"/sys/x": ""}), lambda place: __import__("os").mkfifo(place.folder / "system" / "sys" / "pipe"), lambda place: (place.folder / "system" / "proc").mkdir() or (place.folder / "system" / "proc" / "meminfo").symlink_to(place.folder / "system" / "sys" / "pipe"))),
    Row("a sysfs of garbage", "probe", "this machine: cpu", 0, (machine({path: "\x00\xff\u2028 -1 99999999999999999999 x" for path in ("/proc/cpuinfo", "/proc/meminfo", "/proc/self/cgroup", "/sys/devices/system/cpu/online", "/etc/os-release", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max")}),)),
    Row("permission errors everywhere", "probe", "this machine: cpu", 0, (machine(denied="/proc:/sys:/dev/dri:/dev/kfd:/etc:/run"),)),
    Row("permission errors everywhere, to select", f"select --model {MODEL}", "", 1, (machine(denied="/proc:/sys:/dev/dri:/dev/kfd:/etc:/run"),)),
    Row("no PATH", "probe", "this machine: cpu", 0, (environ({"PATH": "/nowhere"}),)),
    Row("few open files", "probe", "this machine: cpu", 0, (shell("ulimit -n 16;"),)),
)
SURROUNDINGS: tuple[Row, ...] = (*STREAMS, *LOCALES, *HOMES, *DISKS, *MACHINES)
