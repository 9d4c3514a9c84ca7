"""`attnctl probe --libs`: the copies of each library, and which of them processes run."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from typing import Any

import jsonschema
import pytest

from attnctl.machines.libraries import Copy, Libraries
from attnctl.probe.host import HostError
from attnctl.probe.libraries import probe_libraries
from attnctl.probe.library_names import is_soname, library_of, version_of
from attnctl.probe.loader_cache import parse
from attnctl.probe.tape import Replay
from attnctl.render.libraries import libraries_view
from attnctl.render.plain import plain
from tests.commands.running import ROOT, run

SITE = "/venv/lib/python3.12/site-packages"
CUDART = f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"
MAPS = f"""\
7f01-7f02 r-xp 00000000 08:01 11 {CUDART}
7f02-7f03 r--p 00000000 08:01 11 {CUDART}
7f04-7f05 r-xp 00000000 08:01 12 /opt/own/libcudart.so.12.4.127
7f06-7f07 r-xp 00000000 08:01 13 {SITE}/torch/lib/libtorch_cpu.so (deleted)
7f08-7f09 rw-p 00000000 00:00 0 [heap]
"""
ANSWERS: dict[tuple[Any, ...], Any] = {
    ("env", "LD_LIBRARY_PATH"): "relative:/opt/own",
    ("list", "/opt/own"): ["libcudart.so.12", "libcudart.so.12.4.127", "libunknown.so.1"],
    ("real", "/opt/own/libcudart.so.12"): "/opt/own/libcudart.so.12.4.127",
    ("real", "/opt/own/libcudart.so.12.4.127"): "/opt/own/libcudart.so.12.4.127",
    ("site_dirs",): [SITE],
    ("list", SITE): ["numpy.libs", "nvidia", "torch"],
    ("list", f"{SITE}/numpy.libs"): ["libgomp-a34b3233.so.1.0.0"],
    ("list", f"{SITE}/nvidia"): ["cuda_runtime"],
    ("list", f"{SITE}/nvidia/cuda_runtime/lib"): ["libcudart.so.12"],
    ("list", f"{SITE}/torch/lib"): ["libtorch_cpu.so"],
    ("loader_cache",): {
        "libcudart.so.12": "/usr/lib/libcudart.so.12",
        "libgomp.so.1": "/usr/lib/libgomp.so.1",
    },
    ("list", "/proc"): ["1", "77", "78", "79", "self"],
    ("read", "/proc/1/maps"): HostError("denied", "Permission denied"),
    ("read", "/proc/77/maps"): MAPS,
    ("read", "/proc/77/comm"): "engine\n",
    ("read", "/proc/78/maps"): "1-2 r-xp 00000000 08:01 9 /usr/lib/libstdc++.so.6\n",
}


def found(pid: int | None = None, **more: Any) -> Libraries:
    return probe_libraries(Replay.of(ANSWERS | more), pid)


def copy(libraries: Libraries, path: str) -> Copy:
    (one,) = (one for one in libraries.copies if one.path == path)
    return one


def test_every_copy_is_found_once_with_its_links_followed() -> None:
    """Packages, auditwheel's folders, the loader's cache, LD_LIBRARY_PATH; nothing else."""
    assert [(one.library, one.place) for one in found().copies] == [
        ("libcudart", "LD_LIBRARY_PATH"),
        ("libcudart", "system"),
        ("libcudart", "python"),
        ("libgomp", "system"),
        ("libgomp", "python"),
        ("libtorch_cpu", "python"),
    ]
    assert copy(found(), "/opt/own/libcudart.so.12.4.127").version == "12.4.127"


def test_a_folder_of_the_variable_goes_before_the_loader_s_cache() -> None:
    """Of two copies with one name, one alone is what that name gives."""
    assert copy(found(), "/opt/own/libcudart.so.12.4.127").taken_for == ("libcudart.so.12",)
    assert copy(found(), "/usr/lib/libcudart.so.12").taken_for == ()
    assert copy(found(), "/usr/lib/libgomp.so.1").taken_for == ("libgomp.so.1",)
    assert copy(found(), CUDART).taken_for == ()


def test_what_processes_loaded_is_marked() -> None:
    """A process without a GPU's library does not count; another user's is counted apart."""
    libraries = found()
    assert [(one.pid, one.name) for one in libraries.processes] == [(77, "engine")]
    assert libraries.not_asked == 1
    assert copy(libraries, CUDART).loaded_by == (77,)
    assert copy(libraries, "/usr/lib/libcudart.so.12").loaded_by == ()


def test_two_copies_in_one_process_and_a_replaced_file_are_findings() -> None:
    """Each names the process and the files."""
    twice, replaced = found().findings
    assert twice.code == "libraries.twice"
    assert twice.found == f"/opt/own/libcudart.so.12.4.127 (12.4.127) and {CUDART} (12)"
    assert replaced.code == "libraries.replaced"
    assert "process 77 (engine) runs a copy of" in replaced.found
    text = plain(libraries_view(found()))
    assert text.endswith("6 copies of 3 libraries; 2 problems\n")


def test_one_process_is_asked_alone() -> None:
    """With its number any process counts; one that cannot be read is an error."""
    assert [one.pid for one in found(78).processes] == [78]
    with pytest.raises(HostError):
        found(1)


def test_a_machine_that_answers_nothing_has_no_libraries() -> None:
    """Every question refused, or garbled, is an empty answer."""
    for kind in ("absent", "denied", "garbled"):
        nothing = probe_libraries(Replay.of({}, default=(kind, "no")))
        assert (nothing.copies, nothing.processes) == ((), ())
    assert plain(libraries_view(Libraries(copies=()))) == "\n0 copies of 0 libraries; 0 problems\n"


@pytest.mark.parametrize(
    ("name", "library", "version", "asked_for"),
    [
        ("libcublasLt.so.13", "libcublasLt", "13", True),
        ("libgomp-a34b3233.so.1.0.0", "libgomp", "1.0.0", False),
        ("libstdc++.so.6.0.30", "libstdc++", "6.0.30", False),
        ("libnvidia-ml.so", "libnvidia-ml", "", True),
        ("libcudartish.so.1", "", "", False),
        ("libcuda.so.1-gdb.py", "", "", False),
    ],
)
def test_names_of_files_are_understood(
    name: str, library: str, version: str, asked_for: bool
) -> None:
    """Hashes of repaired wheels are passed over; other libraries are none of ours."""
    assert library_of(name) == library
    assert version_of(f"/a/{name}") == version
    assert is_soname(name) is asked_for


def cache(*entries: tuple[int, str, str]) -> bytes:
    """An /etc/ld.so.cache of these (flags, name, path)."""
    strings, body = b"", b""
    base = 48 + 24 * len(entries)
    for flags, name, path in entries:
        places = []
        for text in (name, path):
            places.append(base + len(strings))
            strings += text.encode() + b"\0"
        body += struct.pack("=iIIIQ", flags, *places, 0, 0)
    return (
        b"glibc-ld.so.cache1.1" + struct.pack("=II5I", len(entries), 0, *[0] * 5) + body + strings
    )


def test_the_loader_s_cache_is_read_for_one_machine() -> None:
    """The first entry of a name counts; entries of another machine do not."""
    data = cache(
        (0x0003, "libgomp.so.1", "/lib32/libgomp.so.1"),
        (0x0303, "libgomp.so.1", "/lib64/libgomp.so.1"),
        (0x0303, "libgomp.so.1", "/old/libgomp.so.1"),
    )
    assert parse(data, "x86_64") == {"libgomp.so.1": "/lib64/libgomp.so.1"}
    assert parse(data, "aarch64") == {}
    for broken in (b"", b"ELF", data[:60], data[:20] + b"\xff" * 40):
        with pytest.raises(ValueError, match="cache"):
            parse(broken, "x86_64")


def test_a_real_process_shows_what_it_loaded() -> None:
    """A child that loads the C++ library has it, and says so by the number of the process."""
    text = (
        "import ctypes, sys; ctypes.CDLL('libstdc++.so.6'); print('ready', flush=True);"
        "sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        answer = run("probe", "--libs", "--pid", str(child.pid), "--json")
    finally:
        child.communicate("")
    assert answer.code == 0
    mine = [one for one in answer.json["copies"] if one["loaded_by"] == [child.pid]]
    assert "libstdc++" in {one["library"] for one in mine}
    schema = json.loads((ROOT / "docs" / "schema" / "libraries.schema.json").read_text())
    jsonschema.validate(answer.json, schema)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--pid", "1"), "--pid says whose libraries: give it with --libs"),
        (
            ("--libs", "--save", "x.json"),
            "--libs asks this machine, and nothing else: leave out --save",
        ),
        (("--libs", "--replay", "x.json"), "--libs asks this machine, and nothing else"),
        (("--libs", "--pid", str(2**22 + 7)), "its memory map cannot be read"),
        (("--libs", "--pid", "0"), "its memory map cannot be read"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    """Exit code 2, and nothing on standard output."""
    answer = run("probe", *words)
    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.err
