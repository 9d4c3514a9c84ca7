"""What FlashMLA's kernels take, and FLASHMLA over FP8 caches."""

from __future__ import annotations

from typing import Any

import torch
from latent_adapter_peers import FLASHMLA, drawn, load
from torch import Tensor

from attnctl.backends.flashmla.kernel import FlashMla
from attnctl.ops import mla_cases, mla_trial
from attnctl.ops.mla import Latent
from attnctl.ops.mla_sparse import sparse_latent_attention
from attnctl.ops.packed_rows import pack_rows
from attnctl.ops.paged_cases import PHASES


def limits() -> int:
    """What FlashMLA's sparse kernels make of heads, lengths of lists and rows without a slot."""
    flashmla = load(FLASHMLA)
    rows = drawn(4 * 64, 576)
    params = Latent(scale=0.05, kv_lora_rank=512)
    for heads in (1, 8, 16, 32, 64, 128):
        for places in (32, 64, 128, 192):
            query = drawn(3, heads, 576, seed=heads)
            slots = torch.randint(0, 256, (3, places), device="cuda", dtype=torch.int32)
            slots[0], slots[1, ::2] = -1, -1
            try:
                found, _, top = flashmla.flash_mla_sparse_fwd(
                    query, rows[:, None], slots[:, None], 0.05, 512
                )
                exact, lse = sparse_latent_attention(
                    query.cpu(), rows.view(4, 64, 576).cpu(), slots.cpu(), params
                )
                error = float((found.cpu().double() - exact)[1:].abs().max())
                says = f"error {error:.2e}, lse {float((top.cpu() - lse)[1:].abs().max()):.2e}"
                says += f", empty {float(found[0].abs().max())} {float(top[0, 0])}"
            except RuntimeError as problem:
                says = str(problem).splitlines()[0][:160]
            print(f"plain {heads} heads {places} places: {says}", flush=True)
            print(f"packed {heads} heads {places} places: {packed_says(flashmla, query, slots)}")
    return 0


def packed_says(flashmla: Any, query: Tensor, slots: Tensor) -> str:
    """What the decoding kernel makes of the same over packed rows."""
    rows = drawn(4 * 64, 576).cpu()
    packed = pack_rows(rows[:, :512], rows[:, 512:]).view(4, 64, 656)
    try:
        found, top = flashmla.flash_mla_with_kvcache(
            query[:, None],
            packed.cuda()[:, :, None],
            None,
            None,
            512,
            flashmla.get_mla_metadata()[0],
            softmax_scale=0.05,
            is_fp8_kvcache=True,
            indices=slots[:, None],
        )
    except RuntimeError as problem:
        return str(problem).splitlines()[0][:160]
    params = Latent(scale=0.05, kv_lora_rank=512)
    exact, lse = sparse_latent_attention(query.cpu(), packed, slots.cpu(), params)
    error = float((found[:, 0].cpu().double() - exact)[1:].abs().max())
    says = f"error {error:.2e}, lse {float((top[:, :, 0].cpu() - lse)[1:].abs().max()):.2e}"
    return f"{says}, empty {float(found[0].abs().max())} {float(top[0].max())}"


def fp8() -> int:
    """Cases over FP8 caches, with the numbers of each."""
    runtime, bad = FlashMla(load), 0
    query, cache = drawn(1, 16, 576), torch.zeros(1, 64, 576, device="cuda")
    asked = runtime.query_dtype(query, cache.to(torch.float8_e4m3fn))
    print(f"queries are rounded to {asked}", flush=True)
    for heads in (1, 8, 16, 64, 128):
        for name, phase in PHASES.items():
            one = mla_cases.case(**{**phase, "heads": heads, "kv_cache_dtype": "fp8_e4m3"})
            try:
                found = mla_trial.try_case(runtime, one, "cuda")
                said = f"{found.verdict} {found.detail} {found}"
                bad += found.verdict != "pass"
            except Exception as error:  # a case that fails is what this is for
                said, bad = f"{type(error).__name__}: {str(error)[:300]}", bad + 1
            print(f"{name} {heads} heads: {said}", flush=True)
    return 1 if bad else 0
