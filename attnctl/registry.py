"""What a backend declares, and where declarations are found.

Every folder of attnctl/backends is a backend; installed distributions add theirs through the
entry-point group "attnctl.backends". One that does not load is reported and stops nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from attnctl.layer import Layer
from attnctl.requirements.ranks import tensor_parallel
from attnctl.requirements.rule import Rule, Subject

GROUP = "attnctl.backends"
BUILT_IN = "built-in"

EVERYWHERE = (tensor_parallel(),)
"""Rules that hold for whatever backend: no declaration names them, all are asked them."""


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the default order of one platform; the first that applies counts.

    place: lower is tried earlier. when: None, or a test of machine and layer; a place with a test
    is owed to a rule, one without to the default order. why: whence the order comes, in a phrase.
    """

    platform: str
    place: int
    why: str = "the field's order"
    when: Callable[[Subject], bool] | None = None

    def applies(self, subject: Subject) -> bool:
        return self.platform == subject.platform and (self.when is None or self.when(subject))


class Rival(msgspec.Struct, frozen=True, kw_only=True):
    """An installed package's kernel that may run in place of a backend's own, when asked for.

    rules: what it needs beside the backend's rules.
    """

    name: str
    rules: tuple[Rule, ...]


Kernel = Literal["bundled", "adapter", "planned"]


def is_made_of(tokens: int, units: Sequence[int]) -> bool:
    """Whether a cache block of so many tokens is a multiple of one of these; (): any is."""
    return not units or any(tokens % unit == 0 for unit in units)


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """One way to compute some operations: what it needs, where it stands, what it caches.

    rules: its own; the registry adds those of EVERYWHERE.
    ops: names of attnctl.layer.OPS' values. is_ssm: keeps a fixed-size state per sequence instead
    of a KV cache. block_sizes: kernel block sizes; block_multiple: or any multiple of it;
    block_multiple_on: platform -> the multiple there, where it is another; block_multiple_for: the
    one that what is installed asks for, None where it asks for none (see here()); prefers_block:
    the cache block that it asks for where the user fixes none. offset_bits: of the offsets with
    which its kernel reaches into the cache; None where the library that it calls does not say.
    kernel: "bundled" (ours), "adapter" (calls an installed package) or "planned" (not written).
    unwritten_caches: cache dtypes that its rules take, as the backend of its name in serving
    engines does, and that the kernel here does not: it is picked for them, and not runnable.
    beside: the backend whose kernels compute what a library behind this one has not: the prefill
    and the merge of latent attention, and its indexer.
    rivals: kernels of installed packages that open_backend takes by name, and that may be timed.
    origin: "built-in", or the distribution that brought it. module: where it is declared; the
    registry fills in both. Its kernels are in the module's `kernel`, loaded when they are run.
    """

    name: str
    summary: str
    ops: tuple[str, ...]
    rules: tuple[Rule, ...]
    ranks: tuple[Rank, ...] = ()
    is_ssm: bool = False
    block_sizes: tuple[int, ...] = ()
    block_multiple: int | None = None
    block_multiple_on: dict[str, int] = {}
    block_multiple_for: Callable[[Subject], int | None] | None = None
    prefers_block: int | None = None
    offset_bits: Literal[32, 64, None] = None
    kernel: Kernel = "planned"
    unwritten_caches: tuple[str, ...] = ()
    beside: str = ""
    rivals: tuple[Rival, ...] = ()
    origin: str = BUILT_IN
    module: str = ""

    def here(self, subject: Subject) -> Backend:
        """The backend with the block multiple that the software on this machine asks for."""
        multiple = self.block_multiple_for(subject) if self.block_multiple_for else None
        if multiple is None:
            return self
        return msgspec.structs.replace(self, block_multiple=multiple, block_multiple_on={})

    def block_units(self, platform: str) -> tuple[int, ...]:
        """Sizes of which a cache block must be a multiple of one; (): any size will do."""
        multiple = self.block_multiple_on.get(platform, self.block_multiple)
        return (multiple,) if multiple else self.block_sizes

    def takes_block(self, tokens: int, platform: str) -> bool:
        """Whether it lays a cache out in blocks of so many tokens."""
        return is_made_of(tokens, self.block_units(platform))

    def kernel_for(self, layer: Layer) -> Kernel:
        """Its kernel for this layer: "planned" too for a cache that only its rules take."""
        cached = layer.group.needs_kv_cache
        return (
            "planned" if cached and layer.kv_cache_dtype in self.unwritten_caches else self.kernel
        )

    def rank(self, subject: Subject) -> Rank | None:
        """Its place in the default order for this machine and layer; None: not in the order."""
        for rank in self.ranks:
            if rank.applies(subject):
                return rank
        return None


class Broken(msgspec.Struct, frozen=True):
    """A declaration that could not be loaded, with the error and where it came from."""

    name: str
    origin: str
    error: str


class Registry(msgspec.Struct, frozen=True):
    backends: tuple[Backend, ...]
    broken: tuple[Broken, ...] = ()

    def get(self, name: str) -> Backend | None:
        for backend in self.backends:
            if backend.name == name:
                return backend
        return None

    def packages(self) -> tuple[str, ...]:
        """Every package that some backend's rules ask about, sorted."""
        rules = (rule for backend in self.backends for rule in backend.rules)
        return tuple(sorted({name for rule in rules for name in rule.packages}))


def load() -> Registry:
    """Every declaration that loads, built-in and installed, and each one that does not."""
    backends: dict[str, Backend] = {}
    broken: list[Broken] = []
    for source in (*_built_in(), *_installed()):
        try:
            backend = _checked(source, backends)
        except (Exception, SystemExit) as error:  # a plug-in may raise anything: never fatal
            broken.append(Broken(source.name, source.origin, f"{type(error).__name__}: {error}"))
        else:
            backends[backend.name] = backend
    return Registry(tuple(backends.values()), tuple(broken))


class _Source(msgspec.Struct, frozen=True):
    """Where a declaration is said to be, before anything of it is loaded."""

    name: str
    origin: str
    module: str
    read: Callable[[], object]


def _checked(source: _Source, taken: dict[str, Backend]) -> Backend:
    found = source.read() if source.origin == BUILT_IN else _quietly(source.read)
    if not isinstance(found, Backend):
        raise TypeError(f"expected a Backend, found {type(found).__name__}")
    if source.origin != BUILT_IN:
        # ours are checked by tests, so that no command pays for it
        from attnctl.declared import check

        check(found, taken)
    elif found.name.lower() != source.name:
        raise ValueError(f"the folder {source.name} declares {found.name}")
    rules = (*found.rules, *EVERYWHERE)
    return msgspec.structs.replace(found, origin=source.origin, module=source.module, rules=rules)


def _quietly(read: Callable[[], object]) -> object:
    """What a plug-in declares; what it prints goes to standard error, away from the answer."""
    from contextlib import redirect_stdout

    with redirect_stdout(sys.stderr):
        return read()


def _built_in() -> Iterator[_Source]:
    from attnctl import backends

    for name in sorted(os.listdir(os.path.dirname(backends.__file__))):  # noqa: PTH120, PTH208
        if not name.startswith(("_", ".")) and "." not in name:
            module = f"attnctl.backends.{name}"
            yield _Source(name, BUILT_IN, module, _reader(module))


def _reader(module: str) -> Callable[[], object]:
    def read() -> object:
        __import__(module)
        return sys.modules[module].BACKEND

    return read


def _installed() -> Iterator[_Source]:
    if not any(_mentions_group(folder) for folder in sys.path):
        return
    # this import costs as much as the whole of typer, so it waits until a plug-in is there
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP):
        origin = entry.dist.name if entry.dist else entry.value
        yield _Source(entry.name, origin, entry.module, entry.load)


def _mentions_group(folder: str) -> bool:
    """True where an installed distribution in this folder offers backends."""
    try:
        names = os.listdir(folder or ".")  # noqa: PTH208
    except OSError:
        return False
    infos = (name for name in names if name.endswith((".dist-info", ".egg-info")))
    return any(_offers(f"{folder or '.'}/{name}/entry_points.txt") for name in infos)


def _offers(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return f"[{GROUP}]" in file.read()
    except OSError:
        return False
