"""The default order on each platform: who is tried, in which order, and why."""

from __future__ import annotations

import pytest

from attnctl.machine import Machine
from attnctl.model.spec import LayerGroup
from tests import machine_factory as box
from tests.layer_factory import BY_OP, candidate, decide, eligible, group, latent, pick

ORDERS = [
    # NVIDIA, causal attention over a paged cache
    (box.cuda(7, 5), group(), "float16", "TRITON_ATTN FLEX_ATTENTION"),
    (box.cuda(8), group(), "bfloat16", "FLASH_ATTN FLASHINFER TRITON_ATTN FLEX_ATTENTION"),
    (box.cuda(8, 9), group(), "bfloat16", "FLASH_ATTN FLASHINFER TRITON_ATTN FLEX_ATTENTION"),
    (box.cuda(9), group(), "bfloat16", "FLASH_ATTN FLASHINFER TRITON_ATTN FLEX_ATTENTION"),
    (box.cuda(10), group(), "bfloat16", "FLASHINFER FLASH_ATTN TRITON_ATTN FLEX_ATTENTION"),
    (box.cuda(10, 3), group(), "bfloat16", "FLASHINFER FLASH_ATTN TRITON_ATTN FLEX_ATTENTION"),
    (box.cuda(11), group(), "bfloat16", "FLASH_ATTN FLASHINFER TRITON_ATTN FLEX_ATTENTION"),
    (box.cuda(12), group(), "bfloat16", "FLASH_ATTN FLASHINFER TRITON_ATTN FLEX_ATTENTION"),
    # bidirectional layers are not FlashInfer's, on Blackwell either
    (box.cuda(10), group("encoder_self"), "bfloat16", "FLASH_ATTN TRITON_ATTN FLEX_ATTENTION"),
    # unequal widths
    (box.cuda(8), BY_OP["diffkv"], "bfloat16", "TRITON_ATTN_DIFFKV FLEX_ATTENTION"),
    (
        box.cuda(9),
        BY_OP["diffkv"],
        "bfloat16",
        "FLASH_ATTN_DIFFKV TRITON_ATTN_DIFFKV FLEX_ATTENTION",
    ),
    # latent attention
    (box.cuda(7, 5), latent(), "float16", "TRITON_MLA"),
    (box.cuda(8), latent(), "bfloat16", "TRITON_MLA"),
    (box.cuda(9), latent(), "bfloat16", "FLASH_ATTN_MLA FLASHMLA TRITON_MLA"),
    (box.cuda(10), latent(), "bfloat16", "FLASHINFER_MLA TRITON_MLA"),
    (box.cuda(11), latent(), "bfloat16", "TRITON_MLA"),
    (box.cuda(12), latent(), "bfloat16", "TRITON_MLA"),
    # sparse latent attention
    (box.cuda(8), latent(topk=2048), "bfloat16", "TRITON_MLA_SPARSE"),
    (box.cuda(9), latent(topk=2048), "bfloat16", "FLASHMLA_SPARSE TRITON_MLA_SPARSE"),
    (
        box.cuda(10),
        latent(topk=2048, heads=128),
        "bfloat16",
        "FLASHMLA_SPARSE FLASHINFER_MLA_SPARSE TRITON_MLA_SPARSE",
    ),
    (
        box.cuda(10),
        latent(topk=2048, heads=16),
        "bfloat16",
        "FLASHINFER_MLA_SPARSE FLASHMLA_SPARSE TRITON_MLA_SPARSE",
    ),
    (box.cuda(12), latent(topk=2048), "bfloat16", "TRITON_MLA_SPARSE"),
    # AMD
    (
        box.rocm("gfx942"),
        group(),
        "bfloat16",
        "ROCM_ATTN ROCM_AITER_FA ROCM_AITER_UNIFIED_ATTN TRITON_ATTN FLEX_ATTENTION",
    ),
    (
        box.rocm("gfx90a"),
        group(),
        "bfloat16",
        "ROCM_ATTN TRITON_ATTN ROCM_AITER_UNIFIED_ATTN FLEX_ATTENTION",
    ),
    (
        box.rocm("gfx1201"),
        group(),
        "bfloat16",
        "ROCM_AITER_UNIFIED_ATTN ROCM_ATTN TRITON_ATTN FLEX_ATTENTION",
    ),
    (
        box.rocm("gfx942", packages=("torch", "triton")),
        group(),
        "bfloat16",
        "TRITON_ATTN ROCM_AITER_UNIFIED_ATTN FLEX_ATTENTION",
    ),
    (box.rocm("gfx942"), BY_OP["diffkv"], "bfloat16", "TRITON_ATTN_DIFFKV FLEX_ATTENTION"),
    (box.rocm("gfx942"), latent(), "bfloat16", "ROCM_AITER_MLA TRITON_MLA"),
    (box.rocm("gfx90a"), latent(), "bfloat16", "TRITON_MLA"),
    (
        box.rocm("gfx942"),
        latent(topk=2048),
        "bfloat16",
        "ROCM_AITER_MLA_SPARSE TRITON_MLA_SPARSE",
    ),
    # Intel
    (box.xpu(), group(), "bfloat16", "FLASH_ATTN TRITON_ATTN FLEX_ATTENTION"),
    (box.xpu(), group(), "float32", "TRITON_ATTN FLEX_ATTENTION"),
    (box.xpu(), group(prefix_lm=True), "bfloat16", "TRITON_ATTN FLEX_ATTENTION"),
    (box.xpu(), BY_OP["diffkv"], "bfloat16", "TRITON_ATTN_DIFFKV FLEX_ATTENTION"),
    (box.xpu(), latent(), "bfloat16", "FLASH_ATTN_MLA TRITON_MLA"),
    (box.xpu(), latent(topk=2048), "bfloat16", "XPU_MLA_SPARSE TRITON_MLA_SPARSE"),
    # processors
    (box.cpu(), group(), "bfloat16", "CPU_ATTN FLEX_ATTENTION"),
    (box.cpu("neon"), group(), "float32", "CPU_ATTN FLEX_ATTENTION"),
    (box.cpu(), BY_OP["diffkv"], "bfloat16", "CPU_ATTN FLEX_ATTENTION"),
    (box.cpu(), latent(), "bfloat16", "CPU_MLA"),
    (box.cpu(), latent(topk=2048), "bfloat16", "CPU_MLA_SPARSE"),
]


@pytest.mark.parametrize(
    ("machine", "layers", "dtype", "names"),
    ORDERS,
    ids=[f"{machine.name}-{layers.kind}-{dtype}" for machine, layers, dtype, _ in ORDERS],
)
def test_the_default_order(machine: Machine, layers: LayerGroup, dtype: str, names: str) -> None:
    """Everything is installed: the eligible backends, in the order they are tried."""
    assert " ".join(eligible(decide(layers, machine, dtype=dtype))) == names


def test_a_quantised_sparse_cache_on_blackwell_takes_flashinfer_whatever_the_heads() -> None:
    """The cache's format goes before the number of heads."""
    assert pick(latent(topk=2048, heads=128), box.cuda(10), kv_cache_dtype="fp8") == (
        "FLASHINFER_MLA_SPARSE"
    )


def test_the_heads_that_order_sparse_kernels_are_those_of_one_rank() -> None:
    """128 heads over 8 ranks are 16 per rank."""
    layers = latent(topk=2048, heads=128)
    assert pick(layers, box.cuda(10), tp=1) == "FLASHMLA_SPARSE"
    assert pick(layers, box.cuda(10), tp=8) == "FLASHINFER_MLA_SPARSE"


@pytest.mark.parametrize(
    ("machine", "layers", "evidence", "why"),
    [
        (
            box.cuda(10),
            group(),
            "rule",
            "before FLASH_ATTN: on 10.x causal attention takes FlashInfer first",
        ),
        (box.cuda(9), group(), "default", "before FLASHINFER: the field's order"),
        (
            box.cuda(10),
            latent(topk=2048, heads=16),
            "rule",
            "before FLASHMLA_SPARSE: 16 heads per rank or fewer on 10.x take FlashInfer first",
        ),
        (
            box.rocm("gfx1201"),
            group(),
            "rule",
            "before ROCM_ATTN: with AITER on RDNA 4 its unified attention stands first",
        ),
        (box.cuda(8), latent(), "only", "the only backend that meets every requirement"),
    ],
)
def test_the_winner_says_on_what_it_beat_the_runner_up(
    machine: Machine, layers: LayerGroup, evidence: str, why: str
) -> None:
    """A place that a test of machine or layer gave is a rule; the list itself is the default."""
    decision = decide(layers, machine)
    assert decision.pick is not None
    assert decision.pick.evidence == evidence
    assert decision.pick.why == why


def test_every_pick_says_that_its_kernel_is_planned_until_it_is_not() -> None:
    """The note follows the declaration."""
    for layers in BY_OP.values():
        decision = decide(layers, box.cuda(9))
        assert decision.pick is not None
        planned = candidate(decision, decision.pick.name).kernel == "planned"
        assert decision.pick.runnable is not planned
        assert ("planned" in decision.pick.note) is planned


@pytest.mark.parametrize(
    ("machine", "block"),
    [(box.cuda(9), 16), (box.xpu(), 64), (box.cpu(), 128), (box.rocm("gfx1201"), 64)],
    ids=["FLASH_ATTN", "FLASH_ATTN on Intel", "CPU_ATTN", "ROCM_AITER_UNIFIED_ATTN"],
)
def test_the_cache_block_is_the_picked_backend_s(machine: Machine, block: int) -> None:
    """16 where it is taken, else the backend's own."""
    decision = decide(group(), machine)
    assert decision.pick is not None
    assert decision.pick.block_size == block
