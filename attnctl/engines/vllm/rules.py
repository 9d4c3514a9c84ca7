"""The form of a version's table: rows of backends, orders, branches, and small named checks.

A table holds rows (Backend), orders in which they are tried, straight branches where a platform has
no list, and prefill rows. Adding a version of vLLM means writing another table of these.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from attnctl.caches.pages import KernelBlocks
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.findings import Finding, unknown, unmet

HALF = ("float16", "bfloat16")
FLOATS = (*HALF, "float32")
UNQUANTIZED = ("auto", "float16", "bfloat16")
FP8 = ("fp8", "fp8_e4m3")


Test = Callable[[Facts, Layer], bool]


class Check(msgspec.Struct, frozen=True):
    """A named predicate: whether it holds, what it wants in words, and what it looked at.

    found: the facts that the test read, as they are here; None where the layer's demand says it.
    """

    test: Test
    wanted: str
    found: Callable[[Facts, Layer], str] | None = None


Combination = Callable[[Facts, Layer], Finding | None]


def always(wanted: str = "") -> Check:
    return Check(lambda facts, layer: True, wanted)


def where(facts: Facts) -> str:
    """Return the device as rules look at it."""
    if facts.platform == "cuda":
        return f"compute capability {facts.arch}"
    return facts.arch


def heads(*sizes: int) -> Check:
    return Check(lambda facts, layer: layer.head_size in sizes, f"head size {either(sizes)}")


def heads_from(least: int) -> Check:
    return Check(lambda facts, layer: layer.head_size >= least, f"head size of at least {least}")


def kv(*names: str) -> Check:
    return Check(
        lambda facts, layer: layer.kv_cache_dtype in (None, *names), f"KV cache {either(names)}"
    )


def capability(wanted: str, test: Callable[[tuple[int, int]], bool]) -> Check:
    """Return a check of the compute capability; platforms without one pass."""
    return Check(lambda facts, layer: facts.capability is None or test(facts.capability), wanted)


def majors(*numbers: int) -> Check:
    wanted = f"compute capability {either(tuple(f'{n}.x' for n in numbers))}"
    return capability(wanted, lambda cc: cc[0] in numbers)


ANY = always()


def either(values: tuple[object, ...]) -> str:
    words = [str(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """One row: what a vLLM backend declares about itself.

    features: those that it takes, each with the condition under which it does: sinks, mm_prefix,
    sliding_window, rswa, non_causal, non_causal_dcp, batch_invariant, per_head_scales, dcp, pcp,
    adaptive_verification. blocks: kernel block sizes, or a function of the case where they
    depend on it. needs: imports at load; without them nothing else is looked at. combinations: in
    order, the first finding counts. refuses_connector: not under a KV connector. packs: cache
    dtypes that it rewrites to fp8_ds_mla.
    """

    name: str
    heads: Check = ANY
    dtypes: tuple[str, ...] = HALF
    kv: Check = kv(*UNQUANTIZED)
    blocks: KernelBlocks | Callable[[Facts, Layer], KernelBlocks] = KernelBlocks(sizes=(1,))
    capability: Check = ANY
    attn_types: tuple[str, ...] = ("decoder",)
    features: dict[str, Check] = {}
    mla: bool = False
    sparse: bool = False
    needs: tuple[str, ...] = ()
    combinations: tuple[Combination, ...] = ()
    refuses_connector: bool = False
    packs: tuple[str, ...] = ()

    def kernel_blocks(self, facts: Facts, layer: Layer) -> KernelBlocks:
        return self.blocks if isinstance(self.blocks, KernelBlocks) else self.blocks(facts, layer)


class Order(msgspec.Struct, frozen=True):
    """Candidates of one case, best first, each with the condition under which it is listed.

    dropped: listed, but taken out again for the whole model (not even validated).
    """

    when: Check
    names: tuple[tuple[str, Check], ...]


class Branch(msgspec.Struct, frozen=True):
    """A step of a platform without a list: where it holds, `pick`, or `error` (a class name).

    valid: a row that must also pass every check. because: what the error comes from.
    """

    when: Test
    pick: str | None = None
    error: str | None = None
    because: str = ""
    valid: str | None = None


class Prefill(msgspec.Struct, frozen=True, kw_only=True):
    """An MLA prefill row. dims: (qk_nope, qk_rope, v) widths taken, empty for any."""

    name: str
    dims: tuple[tuple[int, int, int], ...] = ()
    when: Check = ANY


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one version of vLLM decides by.

    unequal_widths: what model classes take for K and V of different widths, best first, each
    with what the class itself checks.
    """

    version: str
    backends: dict[str, Backend]
    orders: dict[str, tuple[Order, ...]]
    branches: dict[str, tuple[Branch, ...]]
    prefill: dict[str, dict[str, Prefill]]
    prefill_orders: dict[str, tuple[Order, ...]]
    state_backends: dict[str, str]
    unequal_widths: tuple[tuple[str, Check], ...]
    default_block_sizes: dict[str, int]

    def row(self, platform: str, pick: str | None) -> Backend | None:
        """Return what stands behind a picked name: XPU has a class of its own for one of them."""
        own = {b.pick: b.valid for b in self.branches.get(platform, ()) if b.valid}
        return self.backends.get(own.get(pick) or pick or "")


def reject(code: str, wanted: str, found: str, fix: str = "") -> Finding:
    return unmet(code, wanted, found, "rules of vLLM", fix)


def absent(facts: Facts, name: str) -> Finding:
    """Return the finding for an import that fails, or that nobody could ask about."""
    wanted = f"{name} importable"
    if name in facts.unknown:
        return unknown("package_missing", wanted, "could not be asked", "installed packages")
    return unmet(
        "package_missing", wanted, "not installed", "installed packages", f"install {name}"
    )
