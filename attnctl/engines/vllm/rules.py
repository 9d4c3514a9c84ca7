"""The form of a version's table, and the checks that every backend goes through.

A table holds rows (Backend), orders in which they are tried, straight branches where a platform has
no list, and prefill rows. Adding a version of vLLM means writing another table of these.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from attnctl.cache_pages import KernelBlocks
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.findings import Finding, unknown, unmet

HALF = ("float16", "bfloat16")
FLOATS = (*HALF, "float32")
UNQUANTIZED = ("auto", "float16", "bfloat16")
FP8 = ("fp8", "fp8_e4m3")


Test = Callable[[Facts, Layer], bool]


class Check(msgspec.Struct, frozen=True):
    """A named predicate: whether it holds, and what it wants in words."""

    test: Test
    wanted: str


Combination = Callable[[Facts, Layer], Finding | None]


def always(wanted: str = "") -> Check:
    return Check(lambda facts, layer: True, wanted)


def heads(*sizes: int) -> Check:
    return Check(lambda facts, layer: layer.head_size in sizes, f"head size {_either(sizes)}")


def heads_from(least: int) -> Check:
    return Check(lambda facts, layer: layer.head_size >= least, f"head size of at least {least}")


def kv(*names: str) -> Check:
    return Check(
        lambda facts, layer: layer.kv_cache_dtype in (None, *names), f"KV cache {_either(names)}"
    )


def capability(wanted: str, test: Callable[[tuple[int, int]], bool]) -> Check:
    """Return a check of the compute capability; platforms without one pass."""
    return Check(lambda facts, layer: facts.capability is None or test(facts.capability), wanted)


def majors(*numbers: int) -> Check:
    wanted = f"compute capability {_either(tuple(f'{n}.x' for n in numbers))}"
    return capability(wanted, lambda cc: cc[0] in numbers)


ANY = always()


def _either(values: tuple[object, ...]) -> str:
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
    kv_required: bool = False
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


# feature -> (whether the layer asks for it, what it is called)
FEATURES: tuple[tuple[str, Callable[[Layer], bool], str], ...] = (
    ("mm_prefix", lambda x: x.use_mm_prefix, "full attention over multimodal prefixes"),
    ("sinks", lambda x: x.has_sink, "attention sinks"),
    ("per_head_scales", lambda x: x.per_head_scales, "quantisation scales per head"),
    ("sliding_window", lambda x: x.has_sliding_window, "a sliding window"),
    ("rswa", lambda x: x.use_rswa, "R-SWA"),
    ("non_causal", lambda x: x.use_non_causal, "non-causal attention"),
    (
        "non_causal_dcp",
        lambda x: x.use_mla and x.use_non_causal and x.dcp > 1,
        "non-causal MLA under decode context parallelism",
    ),
    ("batch_invariant", lambda x: x.batch_invariant, "batch invariance"),
    ("pcp", lambda x: x.pcp > 1, "prefill context parallelism"),
    ("dcp", lambda x: x.dcp > 1, "decode context parallelism"),
    ("adaptive_verification", lambda x: x.use_adaptive_verification, "adaptive verification"),
)
SLUGS = {"non_causal_dcp": "dcp"}


def reject(code: str, wanted: str, found: str, fix: str = "") -> Finding:
    return unmet(code, wanted, found, "rules of vLLM", fix)


def validate(row: Backend, facts: Facts, layer: Layer) -> tuple[Finding, ...]:
    """Return every reason why vLLM rejects this backend, none where it is valid."""
    missing = tuple(name for name in row.needs if not facts.has(name))
    if missing:
        return tuple(absent(facts, name) for name in missing)
    found = [*_ranges(row, facts, layer), *_kinds(row, layer), *_features(row, facts, layer)]
    if layer.use_kv_connector and row.refuses_connector:
        found.append(reject("kv_connector", "no KV connector", "a KV connector is configured"))
    combined = (rule(facts, layer) for rule in row.combinations)
    first = next((finding for finding in combined if finding is not None), None)
    return (*found, first) if first else tuple(found)


def absent(facts: Facts, name: str) -> Finding:
    """Return the finding for an import that fails, or that nobody could ask about."""
    wanted = f"{name} importable"
    if name in facts.unknown:
        return unknown("package_missing", wanted, "could not be asked", "installed packages")
    return unmet(
        "package_missing", wanted, "not installed", "installed packages", f"install {name}"
    )


def _ranges(row: Backend, facts: Facts, layer: Layer) -> list[Finding]:
    out = []
    if not row.heads.test(facts, layer):
        out.append(reject("head_size", row.heads.wanted, f"head size {layer.head_size}"))
    if layer.dtype not in row.dtypes:
        out.append(reject("dtype", _either(row.dtypes), layer.dtype, f"--dtype {row.dtypes[-1]}"))
    needs_kv = row.kv_required and layer.kv_cache_dtype is None
    if needs_kv or not row.kv.test(facts, layer):
        out.append(reject("kv_cache_dtype", row.kv.wanted, f"KV cache {layer.kv_cache_dtype}"))
    blocks = row.kernel_blocks(facts, layer)
    if not blocks.accepts(layer.block_size):
        sizes = _either(blocks.sizes)
        wanted = f"block size {sizes}" if blocks.exact else f"block size a multiple of {sizes}"
        found = f"--block-size {layer.block_size}"
        out.append(reject("block_size", wanted, found, f"--block-size {blocks.preferred(16)}"))
    if not row.capability.test(facts, layer):
        out.append(reject("compute_capability", row.capability.wanted, facts.arch))
    return out


def _kinds(row: Backend, layer: Layer) -> list[Finding]:
    out = []
    if row.mla != layer.use_mla:
        code = "is_mla" if layer.use_mla else "not_mla"
        out.append(
            reject(
                code, _kind(row.mla, "latent attention"), _kind(layer.use_mla, "latent attention")
            )
        )
    if row.sparse != layer.use_sparse:
        code = "sparse" if layer.use_sparse else "not_sparse"
        out.append(
            reject(
                code,
                _kind(row.sparse, "sparse attention"),
                _kind(layer.use_sparse, "sparse attention"),
            )
        )
    if layer.attn_type not in row.attn_types:
        out.append(
            reject("attn_type", f"attention type {_either(row.attn_types)}", layer.attn_type)
        )
    return out


def _kind(yes: bool, what: str) -> str:
    return f"{what} layers" if yes else f"layers without {what}"


def _features(row: Backend, facts: Facts, layer: Layer) -> list[Finding]:
    out = []
    for name, asked, words in FEATURES:
        if not asked(layer):
            continue
        check = row.features.get(name)
        if check is None or not check.test(facts, layer):
            wanted = (
                check.wanted if check is not None and check.wanted else f"layers without {words}"
            )
            out.append(reject(SLUGS.get(name, name), wanted, words))
    return out
