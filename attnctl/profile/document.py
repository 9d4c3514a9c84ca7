"""The profile document: read, checked against its types, damage kept to the entry that has it."""

import os

import msgspec

from attnctl.documents.files import read_bytes
from attnctl.documents.json_text import UNREADABLE, repeated, unmarked
from attnctl.exits import InputError
from attnctl.layer import Layer
from attnctl.machine import VENDORS, Gpu, Machine
from attnctl.profile.days import check_day
from attnctl.profile.keys import Key, Versions, Whole
from attnctl.profile.values import SCHEMA, Entry, Profile, Shape


class Envelope(msgspec.Struct, kw_only=True):
    """A document whose entries are still text, so that damage in one is its own."""

    schema: str
    name: str
    key: Key
    versions: Versions = Versions()
    measured: str = ""
    memory_bytes: Whole | None = None
    conditions: dict[str, Whole | float | str | bool] = {}
    entries: list[msgspec.Raw] = []

    def __post_init__(self) -> None:
        check_day(self.measured)

    def profile(self, entries: tuple[Entry, ...], bad_entries: tuple[str, ...] = ()) -> Profile:
        """The document with these for its entries."""
        return Profile(
            schema=self.schema,
            name=self.name,
            key=self.key,
            versions=self.versions,
            measured=self.measured,
            memory_bytes=self.memory_bytes,
            conditions=self.conditions,
            entries=entries,
            bad_entries=bad_entries,
        )


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """The profile in a file. InputError where it does not read as a whole."""
    return parse(read_bytes(path, "profile"), str(path))


def read_to_add(path: str | os.PathLike[str]) -> Profile:
    """The profile in a file that will be written again. InputError where that would lose a part."""
    profile = read_profile(path)
    for sentence in profile.bad_entries:
        raise InputError(
            f"{sentence}; adding to the file would lose it: correct it, or drop it with: "
            f"attnctl profile prune {path}"
        )
    refuse_newer(profile, path)
    return profile


def refuse_newer(profile: Profile, path: str | os.PathLike[str]) -> None:
    """InputError: it is of a newer minor version, whose keys would be lost if it was written."""
    if int(profile.schema.partition("/")[2].partition(".")[2] or 0):
        raise InputError(
            f"{path}: schema is {profile.schema!r} and this attnctl writes {SCHEMA}: what it does "
            "not know would be lost; upgrade attnctl, or name another file"
        )


def parse(data: bytes, where: str, *, ours: bool = False) -> Profile:
    """The profile in these bytes; an entry that does not read is named in `bad_entries`.

    ours: a shipped file, in which no key is looked for that is given twice.
    """
    data = unmarked(data, where)
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
    except UNREADABLE as error:
        raise InputError(f"{where}: not a profile: {error}") from error
    check_schema(envelope.schema, where)
    twice = {} if ours else repeated_in_entries(data, where)
    entries, bad = [], []
    for index, raw in enumerate(envelope.entries):
        try:
            entry = msgspec.json.decode(raw, type=Entry)
            problem = twice.get(index)
        except UNREADABLE as error:
            problem = str(error)
        if problem is None:
            entries.append(entry)
        else:
            bad.append(f"{where}: entries[{index}] is left out: {problem}")
    return envelope.profile(tuple(entries), tuple(bad))


def repeated_in_entries(data: bytes, where: str) -> dict[int, str]:
    """Entry -> what it names twice; InputError where that is something outside of the entries."""
    found: dict[int, str] = {}
    for text in repeated(data):
        index, bracket, _ = text.removeprefix("entries[").partition("]")
        if not text.startswith("entries[") or not bracket:
            raise InputError(f"{where}: {text}: keep one of them")
        found.setdefault(int(index), text)
    return found


def check_schema(schema: str, where: str) -> None:
    """InputError where the document is of another major version, or no profile."""
    family, _, version = schema.partition("/")
    major, dot, minor = version.partition(".")
    # a newer minor version ("1.4") adds keys, which are ignored; a newer major one changes them
    known = major == "1" and (not dot or (minor.isascii() and minor.isdecimal()))
    if family != "attnctl.profile" or not known:
        raise InputError(
            f"{where}: schema is {schema!r} and this attnctl reads {SCHEMA}: "
            "upgrade attnctl, or take a profile of that schema"
        )


def key_of(machine: Machine, gpu: Gpu | None) -> Key:
    """The key under which a device's timings are kept."""
    if gpu is None:
        cpu = machine.cpu
        arch = cpu.microarchitecture or cpu.isa_level or cpu.arch or "unknown"
        return Key(vendor=cpu.vendor or "unknown", arch=arch, unit_count=cpu.usable)
    vendor = VENDORS[machine.platform]
    return Key(
        vendor=vendor, arch=gpu.arch or "unknown", pci_id=gpu.pci_id, unit_count=gpu.unit_count
    )


def versions_of(machine: Machine) -> Versions:
    """The versions that stand beside the key, as this machine has them.

    A processor has no Triton beside it: none of its kernels is compiled by that.
    """
    vendor = {"cuda": machine.nvidia, "rocm": machine.amd, "xpu": machine.intel}.get(
        machine.platform
    )

    def version(name: str) -> str | None:
        package = machine.packages.get(name)
        return package.version if package else None

    return Versions(
        torch=version("torch"),
        triton=None if machine.platform == "cpu" else version("triton"),
        driver=vendor.driver if vendor else None,
    )


def shape_of(layer: Layer) -> Shape:
    """The shape under which a layer's timings are kept."""
    group = layer.group
    return Shape(
        op=layer.op or "none",
        heads=layer.heads,
        kv_heads=layer.kv_heads,
        head_size=layer.head_size,
        head_size_v=layer.head_size_v,
        dtype=layer.dtype,
        kv_cache_dtype=layer.kv_cache_dtype,
        features=layer.features,
        window=group.chunk if group.window is None else group.window,
        topk=group.indexer.topk if group.indexer else None,
        state=_state(layer),
    )


def _state(layer: Layer) -> tuple[tuple[int, ...], ...]:
    if layer.group.state is None:
        return ()
    from attnctl.caches.states import state_shapes

    try:
        shapes = state_shapes(layer.group.state, layer.tp)
    except InputError:  # no layout is known, or the ranks do not divide it: the rules refuse both
        return ()
    return tuple(shape for _, shape in shapes)
