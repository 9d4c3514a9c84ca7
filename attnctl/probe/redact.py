"""Takes out of tapes and machine files what names a person, a host or one very piece of hardware.

Names are replaced by others, the same for the same throughout one tape, so that a replay still
finds its files, cgroups and GPUs. What goes: paths outside the system's own folders (home folders
among them), user names, addresses, GPU and MIG UUIDs, serial numbers, container ids, tokens, and
every package in a listing that the probe does not look for.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from attnctl.machine import Machine
from attnctl.probe.packages import REDIRECTOR, SPECS
from attnctl.probe.tape import SCHEMA, Entry, Tape

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_MIG_UUID = re.compile(rf"MIG-({_UUID.pattern})")
_SHORT_UUID = re.compile(r"(?<=GPU-)[0-9a-f]{16}\b")
# what KFD calls unique_id is the serial number of an AMD GPU, and its UUID in decimal
_UNIQUE_ID = re.compile(r"(?<=unique_id )[1-9]\d{5,}")
_MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_TOKEN = re.compile(r"\b(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|AKIA|xox[abp]-)[\w-]{8,}")
# container ids, and the UUIDs of pods as systemd writes them
_LONG_HEX = re.compile(r"[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}|[0-9a-f]{12,}")
_SERIAL_LINE = re.compile(r"(?im)^(\s*serial[\w ]*?\s*[:=]\s*)\S.*$")
_PATH = re.compile(r"(?<![\w.+-])/[^\s:;,\"'<>()\[\]=]+")

# folders whose names are the system's own
_SYSTEM = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sys", "usr", "var"}
)
_ROCM = re.compile(r"rocm(-[\d.]+)?")
# names that tell nothing about their owner, wherever they stand
_PLAIN = re.compile(
    r"bin|lib|lib64|include|src|opt|home|root|env|envs|venv|\.venv|\.triton|cache|\.dockerenv"
    r"|cuda(-[\d.]+)?|rocm(-[\d.]+)?|python[\d.]*[a-z]?|Python\.h|site-packages|dist-packages|ptxas(-blackwell)?|gcc|clang|cc"
    r"|(docker|kubepods|libpod|lxc|system|user|init|machine|cri-containerd|crio)[\w.:@-]*"
)
_AFTER_SITE = frozenset({"site-packages", "dist-packages"})
_SITE_NAMES = re.compile(
    "|".join(
        sorted(
            {
                re.escape(name).replace("_", "[-_.]")
                for spec in SPECS
                for name in (*spec.distributions, spec.module.partition("/")[0])
            }
            | {"flashinfer[-_.]jit[-_.]cache", "aiter_meta", re.escape(REDIRECTOR)}
        )
    ),
    re.IGNORECASE,
)
_SYSTEM_GID = 1000


class Redactor:
    """Replaces names, and remembers what by what."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._made: set[str] = set()
        self._mig: set[str] = set()

    def tape(self, tape: Tape) -> Tape:
        """The tape without names; its questions are renamed as its answers are."""
        answers = [(entry, _plain(entry)) for entry in tape.entries]
        self._learn_uuids(answers)
        folders = _site_dirs(answers)
        entries = [self._entry(entry, answer, folders) for entry, answer in answers]
        return Tape(SCHEMA, entries, tape.default)

    def value(self, value: Any) -> Any:
        """A JSON value with every text in it redacted, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.text(str(key)): "" if "serial" in str(key).lower() else self.value(inner)
                for key, inner in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.value(inner) for inner in value]
        return value

    def text(self, text: str) -> str:
        text = _UUID.sub(lambda match: self._uuid(match[0].lower()), text)
        text = _SHORT_UUID.sub(lambda match: f"{self._short(int(match[0], 16)):016x}", text)
        text = _UNIQUE_ID.sub(lambda match: str(self._short(int(match[0]))), text)
        text = _MAC.sub("00:00:00:00:00:00", text)
        text = _ADDRESS.sub("user@host", text)
        text = _TOKEN.sub("token", text)
        text = _SERIAL_LINE.sub(r"\1", text)
        if text.startswith("/") and "\n" not in text:
            return self._path(text)
        return _PATH.sub(lambda match: self._path(match[0]), text)

    def _entry(self, entry: Entry, answer: Any, folders: frozenset[str]) -> Entry:
        ask = self.value(entry.ask)
        if entry.error is not None:
            return Entry(ask, error=(entry.error[0], self.text(entry.error[1])))
        answer = _reduced(entry.ask, answer, folders)
        if entry.ask[:1] == ["env"] and isinstance(answer, str):
            answer = self._mask(answer)
        answer = self.value(answer)
        if entry.lines is not None and isinstance(answer, str):
            return Entry(ask, lines=answer.split("\n"))
        return Entry(ask, ok=answer)

    def _learn_uuids(self, answers: list[tuple[Entry, Any]]) -> None:
        """UUIDs that devices have come before those that only a mask names."""
        for entry, answer in answers:
            if entry.ask[:1] == ["env"]:
                continue
            text = answer if isinstance(answer, str) else str(answer)
            self._mig.update(uuid.lower() for uuid in _MIG_UUID.findall(text))
            for uuid in _UUID.findall(text):
                self._uuid(uuid.lower())

    def _uuid(self, uuid: str) -> str:
        if uuid in self._made:
            return uuid
        # the number stands in front, so that a prefix of a new name is as good as one of an old
        number = self._number("uuid", uuid)
        made = f"{number:08x}-0000-0000-0000-{number:012x}"
        self._made.add(made)
        return made

    def _short(self, unique_id: int) -> int:
        return self._number("unique_id", str(unique_id))

    def _mask(self, mask: str) -> str:
        """A visibility mask whose shortened UUIDs still fit as many devices as before."""
        return ",".join(self._mask_word(word) for word in mask.split(","))

    def _mask_word(self, word: str) -> str:
        kind, dash, prefix = word.strip().partition("-")
        if kind.upper() not in ("GPU", "MIG") or not dash:
            return word
        if _UUID.search(prefix) or _SHORT_UUID.search(word):
            return word
        of_kind = [
            uuid
            for what, uuid in self._numbers
            if what == "uuid" and (uuid in self._mig) == (kind.upper() == "MIG")
        ]
        fits = [uuid for uuid in of_kind if uuid.startswith(prefix.lower())]
        if len(fits) == 1:
            return f"{kind}-{self._uuid(fits[0])}"
        # "0" starts the new name of every device, "f" of none
        return f"{kind}-{'0' if fits else 'f'}"

    def _path(self, path: str) -> str:
        parts = path.split("/")
        if parts[1:4] == ["sys", "fs", "cgroup"]:
            return "/".join([*parts[:4], *map(self._group_part, parts[4:])])
        if parts[1] in _SYSTEM or (parts[1] == "opt" and _ROCM.fullmatch("".join(parts[2:3]))):
            return path
        site = next((at for at, part in enumerate(parts) if part in _AFTER_SITE), len(parts))
        return "/".join([*map(self._part, parts[:site]), *parts[site:]])

    def _part(self, part: str) -> str:
        if not part or _PLAIN.fullmatch(part) or _SITE_NAMES.match(part):
            return _LONG_HEX.sub(lambda match: self._hex(match[0]), part)
        return f"d{self._number('part', part)}"

    def _group_part(self, part: str) -> str:
        """A part of a cgroup's path: the names of the kernel's own files stay."""
        if ("part", part) in self._numbers:
            return self._part(part)
        return _LONG_HEX.sub(lambda match: self._hex(match[0]), part)

    def _hex(self, text: str) -> str:
        return f"{self._number('hex', text):012x}"

    def _number(self, kind: str, name: str) -> int:
        known = self._numbers.get((kind, name))
        if known is None:
            known = 1 + sum(1 for other, _ in self._numbers if other == kind)
            self._numbers[kind, name] = known
        return known


def redact_tape(tape: Tape) -> Tape:
    return Redactor().tape(tape)


def redact_machine(machine: Machine) -> Machine:
    """A machine for a file: no UUID, no private path; it still decides as before."""
    plain = Redactor().value(msgspec.to_builtins(machine))
    for vendor in ("nvidia", "amd", "intel"):
        for gpu in plain[vendor]["gpus"]:
            gpu["uuid"] = None
    plain["timings_ms"] = {}
    return msgspec.convert(plain, Machine)


def _plain(entry: Entry) -> Any:
    if entry.lines is not None:
        return "\n".join(entry.lines)
    return None if entry.ok is msgspec.UNSET else entry.ok


def _site_dirs(answers: list[tuple[Entry, Any]]) -> frozenset[str]:
    found = [answer for entry, answer in answers if entry.ask == ["site_dirs"]]
    return frozenset(
        path for answer in found if isinstance(answer, list) for path in map(str, answer)
    )


def _reduced(ask: list[Any], answer: Any, folders: frozenset[str]) -> Any:
    """An answer without the parts that the probe does not read."""
    if ask[:1] == ["list"] and ask[1:2] and ask[1] in folders and isinstance(answer, list):
        return [name for name in answer if _is_sought(str(name))]
    if ask == ["read", "/proc/self/mountinfo"] and isinstance(answer, str):
        return "\n".join(line for line in answer.split("\n") if " - cgroup" in line)
    if ask == ["read", "/etc/group"] and isinstance(answer, str):
        return "\n".join(_group(line) for line in answer.split("\n") if _is_system_group(line))
    return answer


def _is_sought(name: str) -> bool:
    return bool(_SITE_NAMES.match(name.removeprefix("__editable__").lstrip("_.")))


def _is_system_group(line: str) -> bool:
    fields = line.split(":")
    return len(fields) > 2 and fields[2].isdecimal() and int(fields[2]) < _SYSTEM_GID


def _group(line: str) -> str:
    """A line of /etc/group without its members."""
    return ":".join(line.split(":")[:3]) + ":"
