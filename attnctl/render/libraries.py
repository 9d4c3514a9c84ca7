"""The screen of `attnctl probe --libs`."""

from __future__ import annotations

from attnctl.machines.libraries import Copy, Libraries
from attnctl.render.amounts import count_text
from attnctl.render.view import Block, Heading, Line, Mark, Table, View

PLACES = {
    "LD_LIBRARY_PATH": "LD_LIBRARY_PATH",
    "system": "the system",
    "python": "a Python package",
    "toolkit": "a toolkit",
    "process": "a process alone",
}


def libraries_view(found: Libraries) -> View:
    """A table of the copies, the processes that have some loaded, what is wrong, and a verdict."""
    blocks: list[Block] = []
    if found.copies:
        columns = ("library", "version", "found in", "default for", "loaded by", "file")
        blocks.append(Table(columns, tuple(map(_row, found.copies))))
    if found.processes:
        named = ", ".join(f"{one.pid} {one.name}".strip() for one in found.processes)
        blocks.append(Line(f"processes: {named}"))
    if found.not_asked:
        count = count_text(found.not_asked, "process", "processes")
        blocks.append(Line(Mark(f"{count} of other users not looked into", "dim")))
    if found.findings:
        rows = tuple(
            (Mark(one.code, "warn"), one.wanted, one.found, one.fix) for one in found.findings
        )
        blocks += [Heading("findings"), Table(("code", "wanted", "found", "fix"), rows, indent=2)]
    return (*blocks, Line(""), Line(_verdict(found)))


def _row(copy: Copy) -> tuple[str, ...]:
    loaded = " ".join(map(str, copy.loaded_by))
    where = PLACES[copy.place]
    return (copy.library, copy.version, where, " ".join(copy.taken_for), loaded, copy.path)


def _verdict(found: Libraries) -> Mark:
    libraries = {one.library for one in found.copies}
    count = count_text(len(found.copies), "copy", "copies")
    of = count_text(len(libraries), "library", "libraries")
    problems = count_text(len(found.findings), "problem")
    text = f"{count} of {of}; {problems}"
    return Mark(text, "warn" if found.findings else "good")
