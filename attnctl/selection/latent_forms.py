"""In which form a pick computes latent attention, prefilling and decoding, and by whose kernels.

Absorbed: one KV head of the cached row, for any number of query tokens. Uncompressed: keys and
values of every head made from the cache, which costs less where queries are many. Attention over
picked tokens is absorbed always: a token is picked for all heads of one query alone.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from attnctl.decision import Decision
from attnctl.registry import Registry

Form = Literal["absorbed", "uncompressed"]


class LatentForms(msgspec.Struct, frozen=True, kw_only=True):
    """row: columns of the absorbed form's key. prefill_head_size, prefill_head_size_v: of the
    uncompressed form's keys and values. prefill_by, indexer_by: backends whose kernels compute;
    indexer_by is None where attention is dense.
    """

    decode: Form
    prefill: Form
    row: int
    prefill_head_size: int | None
    prefill_head_size_v: int | None
    prefill_by: str
    indexer_by: str | None = None


def latent_forms(decision: Decision, registry: Registry) -> LatentForms | None:
    """None for other attention, and where nothing was picked."""
    mla, pick = decision.group.mla, decision.pick
    backend = registry.get(pick.name) if pick else None
    if mla is None or backend is None or decision.op not in ("mla", "mla_sparse"):
        return None
    beside = backend.beside or backend.name
    sparse = decision.op == "mla_sparse"
    return LatentForms(
        decode="absorbed",
        prefill="absorbed" if sparse else "uncompressed",
        row=mla.kv_lora_rank + mla.qk_rope_head_dim,
        prefill_head_size=None if sparse else mla.prefill_head_size,
        prefill_head_size_v=None if sparse else mla.prefill_head_size_v,
        prefill_by=backend.name if sparse else beside,
        indexer_by=beside if sparse else None,
    )
