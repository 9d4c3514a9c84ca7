"""FlashInfer's latent decoding for data-centre Blackwell (trtllm-gen), as two backends call it.

It decodes one token of a sequence at a time in bfloat16, or in FP8 where the cache is: FP8 keys
are multiplied with FP8 queries. It reads its schedule from shapes and waits for nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.latent.adapter import State
from attnctl.kernels.latent.rows import FP8
from attnctl.kernels.latent.tokens import more_heads
from attnctl.kernels.libraries import Load, loaded
from attnctl.ops.mla import Latent

MODULE, FUNCTION = "flashinfer.mla", "trtllm_batch_decode_with_kv_cache_mla"
WORKSPACE_BYTES = 128 << 20
"""FlashInfer's own advice for its workspace, beside what a log-sum-exp asks for."""
STATISTICS_BYTES = 8 * 256
"""Per head and row: two float32 for each of 256 rows to which it rounds up, and MARGIN_BYTES."""
MARGIN_BYTES = 1 << 20
NOPE = 128
"""qk_nope_head_dim of DeepSeek V3: an argument of which the function takes notice in nothing."""


class FlashInferLatent:
    """The function with the workspace that it keeps between calls."""

    def __init__(self, name: str, load: Load) -> None:
        self._name, self._load = name, load
        self._function: Any = None
        self._workspaces: dict[torch.device, Tensor] = {}

    def open(self) -> Any:
        """InputError: FlashInfer cannot be loaded; AbsentError: it is not installed."""
        if self._function is None:
            self._function = loaded(
                self._name, "FlashInfer", self._load, MODULE, attribute=FUNCTION
            )
        return self._function

    def decode(
        self,
        query: Tensor,
        pages: Tensor,
        table: Tensor,
        lengths: Tensor,
        longest: int,
        params: Latent,
        lse: bool,
        **rest: Any,
    ) -> State:
        """out [T, H, L] and lse [T, H], natural, of query [T, H, L + R] over pages [N, P, L + R].

        table: [T, pages] int32, or [T, 1, K] slots of a sparse call. lengths: [T] int32.
        """
        tokens, heads, columns = query.shape
        # its tiles have 64 heads or 128, and nothing between
        wide = more_heads(query, 128) if 64 < heads < 128 else query
        if pages.dtype in FP8:
            most = torch.finfo(pages.dtype).max
            wide = wide.float().clamp(-most, most).to(pages.dtype)
        if lse:
            rest.update(return_lse=True, return_lse_base="basee")
        found = self.open()(
            query=wide[:, None],
            kv_cache=pages[:, None],
            workspace_buffer=self._workspace(query.device, tokens * wide.shape[1] if lse else 0),
            qk_nope_head_dim=NOPE,
            kv_lora_rank=params.kv_lora_rank,
            qk_rope_head_dim=columns - params.kv_lora_rank,
            block_tables=table,
            seq_lens=lengths,
            max_seq_len=longest,
            bmm1_scale=params.scale,
            bmm2_scale=1.0,
            **rest,
        )
        out, top = found if lse else (found, None)
        if top is not None:
            top = top.reshape(tokens, -1)[:, :heads]
        return out[:, 0, :heads], top

    def _workspace(self, device: torch.device, rows: int) -> Tensor:
        """Zeroed once; room for the statistics of so many rows of logits beside the rest."""
        wanted = WORKSPACE_BYTES + (rows * STATISTICS_BYTES + MARGIN_BYTES if rows else 0)
        held = self._workspaces.get(device)
        if held is None or held.numel() < wanted:
            held = self._workspaces[device] = torch.zeros(wanted, dtype=torch.int8, device=device)
        return held


def computes(query: Tensor, cache: Tensor) -> bool:
    """Whether its kernels have these dtypes."""
    return query.dtype is torch.bfloat16 and cache.dtype in (torch.bfloat16, torch.float8_e4m3fn)
