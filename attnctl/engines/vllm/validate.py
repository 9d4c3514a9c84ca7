"""The checks that every backend goes through, in vLLM's order; all of them run."""

from __future__ import annotations

from collections.abc import Callable

from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import Backend, absent, either, reject
from attnctl.findings import Finding

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


def _ranges(row: Backend, facts: Facts, layer: Layer) -> list[Finding]:
    out = []
    if not row.heads.test(facts, layer):
        out.append(reject("head_size", row.heads.wanted, f"head size {layer.head_size}"))
    if layer.dtype not in row.dtypes:
        out.append(reject("dtype", either(row.dtypes), layer.dtype))
    if not row.kv.test(facts, layer):
        out.append(reject("kv_cache_dtype", row.kv.wanted, _cache(row, facts, layer)))
    blocks = row.kernel_blocks(facts, layer)
    if not blocks.accepts(layer.block_size):
        sizes = either(blocks.sizes)
        wanted = f"block size {sizes}" if blocks.exact else f"block size a multiple of {sizes}"
        found = f"--block-size {layer.block_size}"
        out.append(reject("block_size", wanted, found))
    if not row.capability.test(facts, layer):
        out.append(reject("compute_capability", row.capability.wanted, facts.arch))
    return out


def _cache(row: Backend, facts: Facts, layer: Layer) -> str:
    beside = f" with {row.kv.found(facts, layer)}" if row.kv.found is not None else ""
    return f"KV cache {layer.kv_cache_dtype}{beside}"


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
        out.append(reject("attn_type", f"attention type {either(row.attn_types)}", layer.attn_type))
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
            found = words if check is None or check.found is None else check.found(facts, layer)
            out.append(reject(SLUGS.get(name, name), wanted, found))
    return out
