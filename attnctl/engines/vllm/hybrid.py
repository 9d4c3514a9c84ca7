"""Block and page sizes that vLLM gives to hybrids of attention and state layers.

mamba_page_size_padded follows vLLM's name: what a state's page is padded to, None where it fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnctl.caches.pages import HybridBlocks, common_block_size, latent_bytes, token_bytes, unify
from attnctl.caches.states import StateTensor, state_bytes, state_tensors
from attnctl.engines.vllm.facts import Facts, Layer, ModelFacts, facts_of
from attnctl.engines.vllm.rules import Backend, Table
from attnctl.exits import InputError
from attnctl.model.spec import State

MLA_FLOOR = 128  # least granule of a latent cache beside states
XPU_GDN_STEP = 64  # XPU's delta-rule kernels want multiples of it
KDA_STATES = ("auto", "float32", "bfloat16")  # what a state of Kimi's delta rule may be kept in
# a recorded case's names -> those of State
FIELDS = {
    "intermediate": "inner",
    "dim": "inner",
    "state": "state_size",
    "groups": "n_groups",
    "heads": "num_heads",
    "head_dim": "head_dim",
    "k_heads": "num_k_heads",
    "v_heads": "num_v_heads",
    "k_dim": "head_k_dim",
    "v_dim": "head_v_dim",
    "conv": "conv_kernel",
}


def per_token_bytes(row: Backend, layer: Layer, kv_heads: int) -> int:
    """Return what one token takes in one layer of one rank; kv_heads are those of the rank."""
    kv = layer.kv_cache_dtype or "auto"
    kv = "fp8_ds_mla" if kv in row.packs else kv
    if layer.use_mla:
        return latent_bytes(layer.head_size, kv, layer.dtype)
    width_v = layer.head_size if layer.head_size_v is None else layer.head_size_v
    return token_bytes(kv_heads, layer.head_size, width_v, kv, layer.dtype)


def blocks_for(
    table: Table,
    facts: Facts,
    layers: Sequence[tuple[Backend, Layer]],
    kv_heads: int,
    tensors: Sequence[StateTensor],
    kinds: Sequence[str],
    align: int | None = None,
) -> HybridBlocks | None:
    """Return the sizes, or None where vLLM raises because a backend does not take them.

    layers: (backend, layer) of each attention backend in use, the model's first one first.
    kinds: of the state layers. align: tokens between checkpoints, None unless states are kept at
    block ends.
    """
    kernels = [row.kernel_blocks(facts, layer) for row, layer in layers]
    row, layer = layers[0]
    start = layer.block_size
    if start is None:
        start = common_block_size(kernels, table.default_block_sizes[facts.platform])
    if start is None:
        return None
    has_gdn = any(table.state_backends.get(kind) == "GDN_ATTN" for kind in kinds)
    return unify(
        kernels,
        per_token_bytes(row, layer, kv_heads),
        state_bytes(tensors),
        block_size=start,
        floor=MLA_FLOOR if layer.use_mla else 1,
        align=align,
        round_to=XPU_GDN_STEP if facts.platform == "xpu" and has_gdn else 1,
    )


def hybrid_blocks(table: Table, case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a recorded case: shapes, dtypes and bytes of the state, block sizes."""
    facts = facts_of(case["platform"], case["arch"], case["profile"])
    tp, cache = case.get("tp", 1), case.get("cache", {})
    dtype = case.get("dtype", "bfloat16")
    try:
        tensors = _tensors(case["state"], dtype, cache, tp, case.get("num_spec", 0))
    except InputError:
        # vLLM asserts that heads and channels divide by the ranks
        return _answer((), None, "AssertionError")
    kind = case["state"]["kind"]
    if kind == "kda" and cache.get("mamba_ssm_cache_dtype", "auto") not in KDA_STATES:
        return _answer((), None, "ValueError")
    layer, kv_heads = _attention(case["attn"], dtype, cache, tp)
    layers = [(table.backends[name], layer) for name in case["attn"]["backends"]]
    align = case.get("ckpt_align", 1) if cache.get("mode") == "align" else None
    found = blocks_for(table, facts, layers, kv_heads, tensors, (kind,), align)
    return _answer(tensors, found, None if found else "ValueError")


def _tensors(
    state: Mapping[str, Any], dtype: str, cache: Mapping[str, Any], tp: int, num_spec: int
) -> tuple[StateTensor, ...]:
    fields = {FIELDS[name]: value for name, value in state.items() if name in FIELDS}
    return state_tensors(
        State(type=state["kind"], **fields),
        dtype=dtype,
        conv_dtype=cache.get("mamba_cache_dtype", "auto"),
        ssm_dtype=cache.get("mamba_ssm_cache_dtype", "auto"),
        tp=tp,
        num_spec=num_spec,
    )


def _attention(
    attn: Mapping[str, Any], dtype: str, cache: Mapping[str, Any], tp: int
) -> tuple[Layer, int]:
    use_mla = attn.get("use_mla", False)
    heads, kv_heads = max(1, attn["num_heads"] // tp), max(1, attn["num_kv_heads"] // tp)
    layer = Layer(
        head_size=attn["head_size"],
        dtype=dtype,
        kv_cache_dtype=cache.get("cache_dtype", "auto"),
        block_size=cache.get("user_block_size"),
        use_mla=use_mla,
        num_heads=heads if use_mla else None,
        model=ModelFacts(num_heads=heads, num_kv_heads=kv_heads, hf=attn.get("hf", {})),
    )
    return layer, kv_heads


def _answer(
    tensors: Sequence[StateTensor], found: HybridBlocks | None, error: str | None
) -> dict[str, Any]:
    return {
        "shapes": [list(tensor.shape) for tensor in tensors],
        "dtypes": [tensor.dtype for tensor in tensors],
        "state_bytes": state_bytes(tensors) if tensors else None,
        "block_size": found.block_size if found else None,
        "mamba_block_size": found.mamba_block_size if found else None,
        "mamba_page_size_padded": found.padded_page_bytes if found else None,
        "error": error,
    }
