"""transformers' models on attnctl's backends.

    from attnctl.integrations.transformers import PackedCache, attach
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="attnctl")
    attach(model)                               # state-space layers, where the model has any
    model.generate(**inputs, past_key_values=PackedCache(model.config))     # cache= from 5.24 on

Importing this module registers "attnctl" with transformers' attention interface. Each layer runs
what `attnctl.plan` gives for the model's configuration on this machine, profiles included. With
transformers' own caches a call copies its keys and values into blocks first; a PackedCache keeps
them there. Written against transformers 5.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedConfig
from transformers.masking_utils import AttentionMaskInterface

from attnctl.exits import InputError
from attnctl.integrations.delta_rule import attach_delta_rule
from attnctl.integrations.gradients import forward_only
from attnctl.integrations.masks import attention_mask
from attnctl.integrations.packed_cache import PackedCache as PackedCache
from attnctl.integrations.packing import Packed, PackedRows, packed_rows, packed_view, room
from attnctl.layer import Options
from attnctl.ops.paged import Paged
from attnctl.plans.opening import LayerPlan, Plan, plan

NAME = "attnctl"

_plans: dict[int, tuple[PreTrainedConfig, str, Plan]] = {}


def use_plan(config: PreTrainedConfig, ready: Plan, dtype: torch.dtype = torch.float32) -> None:
    """Makes models of this configuration object run this plan, not one made on first use."""
    _plans[id(config)] = config, _named(dtype), ready


def plan_of(config: PreTrainedConfig, dtype: torch.dtype) -> Plan:
    """The plan of a configuration on this machine, made once. InputError: no backend serves it."""
    name = _named(dtype)
    known = _plans.get(id(config))
    if known is None or known[0] is not config or known[1] != name:
        made = plan(config.to_dict(), options=Options(dtype=name))
        known = _plans[id(config)] = config, name, made
    return known[2]


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: [B, T, H, Dv] from query [B, H, T, D], key [B, Hk, S, D].

    attention_mask: None, or [B, S] bool, false for padding. InputError: what no backend computes
    here: dropout, packed sequences, a mask of its own; later, where a gradient is asked for.
    """
    if dropout:
        raise InputError("attnctl: attention dropout is for training; call model.eval() first")
    if attention_mask is not None and attention_mask.dim() != 2:
        raise InputError(
            f"attnctl: an attention mask of {attention_mask.dim()} dimensions; pass one of [B, S] "
            'that tells padding, or use attn_implementation="sdpa"'
        )
    if others.get("cu_seq_lens_q") is not None:
        raise InputError("attnctl: packed sequences come without their cache here; pad them")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    layer = _layer(module, query.dtype)
    params = Paged(
        scale=query.shape[3] ** -0.5 if scaling is None else scaling,
        causal=causal,
        window=sliding_window,
        softcap=softcap,
        sinks=None if s_aux is None else s_aux.float(),
    )
    rows = packed_rows(query, key, attention_mask, sliding_window is not None)
    packed = _packed(layer, key, value, rows, params)
    metadata = layer.build_metadata(
        rows.query_start_loc,
        rows.seq_lens,
        packed.block_table,
        torch.full((rows.tokens,), -1, dtype=torch.int64, device=query.device),
        max_query_len=rows.max_query_len,
        max_seq_len=rows.max_seq_len,
    )
    found = layer.forward(rows.queries(query), packed.cache, metadata, params)
    return forward_only(rows.padded(found, query), query, key, value, s_aux), None


def _packed(
    layer: LayerPlan, key: Tensor, value: Tensor, rows: PackedRows, params: Paged
) -> Packed:
    """The keys and values where a PackedCache keeps them, or copied into blocks of their own."""
    if rows.whole:
        seen = packed_view(key, value, layer.block_size or 1)
        if seen is not None:
            return seen
    packed, slots, starts = room(layer, key, rows)
    metadata = layer.build_metadata(
        starts,
        rows.seq_lens,
        packed.block_table,
        slots,
        max_query_len=rows.max_seq_len,
        max_seq_len=rows.max_seq_len,
    )
    layer.write_cache(rows.keys(key), rows.keys(value), packed.cache, metadata, params)
    return packed


def _layer(module: torch.nn.Module, dtype: torch.dtype) -> LayerPlan:
    config, index = getattr(module, "config", None), getattr(module, "layer_idx", None)
    if config is None or index is None:
        raise InputError(
            f"attnctl: {type(module).__name__} has no config or no layer_idx, by which its layer's "
            "plan is found"
        )
    found = plan_of(config, dtype).get(index)
    if found is None:
        raise InputError(f"attnctl: the configuration has no attention in layer {index}")
    return found


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def attach(model: torch.nn.Module) -> int:
    """Puts the gated delta rule of a model's layers on the library; the number of such layers.

    The layers keep their weights and transformers' cache; the delta rule and the convolution run
    on GDN_ATTN and SHORT_CONV_ATTN.
    """
    return attach_delta_rule(model)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, attention_mask)
