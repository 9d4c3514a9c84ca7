"""What supports what: the support table, read off the declarations themselves.

One value for `attnctl list`: as a table, as JSON, and as the markdown of the docs.
"""

from __future__ import annotations

import msgspec

from attnctl.layer import FEATURES, OPS
from attnctl.registry import Backend, Broken, Rank, Registry
from attnctl.requirements.rule import Rule

SCHEMA = "attnctl.matrix/1"
PLATFORMS = ("cuda", "rocm", "xpu", "cpu")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One backend. Texts are what its rules accept; "" where no rule asks.

    features: name -> "yes", "no", or the condition. devices, packages: one text per rule. rivals:
    installed packages' kernels that may run in place of its own. installed, usable: whether its
    packages are there and whether the device takes it ("yes", "no", "unknown"; "" where no machine
    was asked); not_usable: the reasons.
    """

    name: str
    summary: str
    ops: tuple[str, ...]
    platforms: tuple[str, ...]
    devices: tuple[str, ...]
    packages: tuple[str, ...]
    head_sizes: str
    dtypes: str
    kv_cache_dtypes: str
    blocks: str
    features: dict[str, str]
    is_ssm: bool
    kernel: str
    origin: str
    rivals: tuple[str, ...] = ()
    installed: str = ""
    usable: str = ""
    not_usable: tuple[str, ...] = ()


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The default order of one operation on one platform, and the rules that change it."""

    platform: str
    op: str
    names: tuple[str, ...]
    rules: tuple[str, ...] = ()


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """machine: where `installed` and `usable` were asked; "" for nowhere."""

    schema: str = SCHEMA
    machine: str = ""
    rows: tuple[Row, ...]
    orders: tuple[Order, ...]
    broken: tuple[Broken, ...] = ()


def matrix(registry: Registry) -> Matrix:
    """The support table of a registry: rows by name, orders by platform and operation."""
    rows = tuple(_row(backend) for backend in sorted(registry.backends, key=lambda b: b.name))
    ops = tuple(dict.fromkeys((*OPS.values(), "diffkv")))
    orders = (
        _order(registry, platform, op)
        for platform in PLATFORMS
        for op in (*ops, *_foreign(rows, ops))
    )
    return Matrix(
        rows=rows, orders=tuple(o for o in orders if o.names or o.rules), broken=registry.broken
    )


def _foreign(rows: tuple[Row, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """Operations that only plug-ins name."""
    return tuple(dict.fromkeys(op for row in rows for op in row.ops if op not in known))


def _row(backend: Backend) -> Row:
    return Row(
        name=backend.name,
        summary=backend.summary,
        ops=backend.ops,
        platforms=_platforms(backend),
        devices=_each(backend, "compute_capability", "arch", "isa"),
        packages=_each(backend, "package_missing", "flash_version"),
        head_sizes="; ".join(_each(backend, "head_size", "mla_dims", "head_size_512")),
        dtypes="; ".join(_each(backend, "dtype")),
        kv_cache_dtypes="; ".join((*_each(backend, "kv_cache_dtype"), *_unwritten(backend))),
        blocks=_blocks(backend),
        features={
            rule.code: rule.wanted or "if its rule is met"
            for rule in backend.rules
            if rule.code in FEATURES
        },
        is_ssm=backend.is_ssm,
        kernel=backend.kernel,
        origin=backend.origin,
        rivals=tuple(rival.name for rival in backend.rivals),
    )


def _unwritten(backend: Backend) -> tuple[str, ...]:
    names = backend.unwritten_caches
    return (f"the kernel for {' and '.join(names)} is planned",) if names else ()


def _platforms(backend: Backend) -> tuple[str, ...]:
    named = [rule.platforms for rule in backend.rules if rule.code == "platform"]
    return named[0] if named else PLATFORMS


def _each(backend: Backend, *codes: str) -> tuple[str, ...]:
    """What the rules of these codes accept, with the platforms where a rule asks on some alone."""
    platforms = _platforms(backend)
    rules = (rule for rule in backend.rules if rule.code in codes and rule.wanted)
    return tuple(dict.fromkeys(_text(rule, platforms) for rule in rules))


def _text(rule: Rule, platforms: tuple[str, ...]) -> str:
    # a compute capability tells its platform itself
    everywhere = not rule.platforms or set(platforms) <= set(rule.platforms)
    if everywhere or rule.code in ("compute_capability", "arch", "isa"):
        return rule.wanted
    return f"{rule.wanted} ({', '.join(rule.platforms)})"


def _blocks(backend: Backend) -> str:
    text = "; ".join(_each(backend, "block_size"))
    return f"{text}; asks for {backend.prefers_block}" if backend.prefers_block else text


def _order(registry: Registry, platform: str, op: str) -> Order:
    ranked = [
        (rank, backend.name)
        for backend in registry.backends
        if op in backend.ops
        for rank in backend.ranks
        if rank.platform == platform
    ]
    ranked.sort(key=_place)
    names = tuple(name for rank, name in ranked if rank.when is None)
    rules = tuple(f"{name}: {rank.why}" for rank, name in ranked if rank.when is not None)
    return Order(platform=platform, op=op, names=names, rules=rules)


def _place(entry: tuple[Rank, str]) -> tuple[int, str]:
    return entry[0].place, entry[1]
