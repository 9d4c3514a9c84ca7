"""What a decision keeps in cache: bytes per token of KV pages, bytes per sequence of states.

Per tensor-parallel rank. Layers that read another layer's cache keep none of their own; a sliding
window or a chunk bounds what a long sequence needs, encoder layers keep nothing.
"""

from __future__ import annotations

import msgspec

from attnctl.caches.pages import indexer_bytes, latent_bytes, token_bytes
from attnctl.caches.states import StateTensor, state_bytes, state_tensors
from attnctl.decision import Decision
from attnctl.exits import InputError
from attnctl.layer import Options
from attnctl.model.spec import LayerGroup
from attnctl.requirements.ranks import undivided


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One group's share of the cache, on one rank.

    layers: those that keep a cache of their own. token_bytes, state_bytes: of all of them together
    (a token's KV; one sequence's states). block_bytes: one page of one layer. sequence_bytes: one
    sequence of sequence_tokens tokens, windows counted; None where no length is known.
    of_encoder: the tokens are the encoder's. note: why a figure is missing.
    """

    layers: int
    block_size: int | None = None
    block_bytes: int | None = None
    token_bytes: int = 0
    state_bytes: int = 0
    states: tuple[StateTensor, ...] = ()
    sequence_tokens: int | None = None
    sequence_bytes: int | None = None
    of_encoder: bool = False
    note: str = ""

    @property
    def layer_token_bytes(self) -> int:
        """What a token takes in one layer, an indexer's keys left out."""
        if self.block_bytes and self.block_size:
            return self.block_bytes // self.block_size
        return self.token_bytes // self.layers


def cost(
    decision: Decision,
    options: Options,
    max_position: int | None = None,
    max_encoder_position: int | None = None,
) -> Cost:
    """What these layers keep, with the block size of the pick.

    max_position, max_encoder_position: the model's limits; cross-attention keeps the encoder's
    tokens, to which --max-model-len does not apply.
    """
    group = decision.group
    layers = len(group.layers) - len(group.kv_shared_from)
    if layers == 0:
        return Cost(layers=0)
    uneven = undivided(group, options.tp)
    if uneven and decision.op is not None:
        return Cost(layers=layers, note=f"not known: {uneven} do not divide by --tp {options.tp}")
    try:
        if group.is_ssm:
            return _state_cost(decision, options, layers)
        if group.needs_kv_cache:
            own = options.max_model_len or max_position
            if group.notes.get("merged_cross"):
                own = None  # it keeps the encoder's tokens beside its own, however many those are
            across = group.kind == "cross"
            return _kv_cost(decision, options, layers, max_encoder_position if across else own)
    except InputError as error:
        return Cost(layers=layers, note=f"not known: {error}")
    return Cost(layers=0)


def _state_cost(decision: Decision, options: Options, layers: int) -> Cost:
    state = decision.group.state
    if state is None:
        return Cost(layers=layers, note="not known: the configuration gives no state shapes")
    tensors = state_tensors(
        state,
        dtype=decision.dtype,
        conv_dtype=state.conv_dtype or "auto",
        ssm_dtype=state.ssm_dtype or "auto",
        tp=options.tp,
        num_spec=options.speculative_tokens,
    )
    # every draft may be the last that stays, so each leaves a state in a slot of its own
    total = layers * (1 + options.speculative_tokens) * state_bytes(tensors)
    return Cost(layers=layers, state_bytes=total, states=tensors, sequence_bytes=total)


def _kv_cost(decision: Decision, options: Options, layers: int, tokens: int | None) -> Cost:
    group = decision.group
    per_layer = _layer_token_bytes(decision, options)
    block = decision.pick.block_size if decision.pick else None
    indexing = _indexer_token_bytes(group)
    per_token = layers * per_layer + indexing
    return Cost(
        layers=layers,
        block_size=block,
        block_bytes=None if block is None else block * per_layer,
        token_bytes=per_token,
        sequence_tokens=tokens,
        sequence_bytes=None if tokens is None else _kept(group, tokens) * per_token,
        of_encoder=group.kind == "cross",
    )


def _layer_token_bytes(decision: Decision, options: Options) -> int:
    group, kv_dtype, dtype = decision.group, decision.kv_cache_dtype, decision.dtype
    if group.head_size is None or group.num_kv_heads is None:
        raise InputError("the configuration gives no head size or no KV heads")
    ratio = group.notes.get("compress_ratio")
    if ratio:
        raise InputError(
            f"one row per {ratio} tokens of context beside a window is not counted here"
        )
    # DeepSeek V4's window keeps one row that is both key and value
    if ratio == 0 or decision.op in ("mla", "mla_sparse"):
        return latent_bytes(group.head_size, kv_dtype, dtype)
    width_v = group.head_size_v or group.head_size
    return token_bytes(group.num_kv_heads, group.head_size, width_v, kv_dtype, dtype, options.tp)


def _indexer_token_bytes(group: LayerGroup) -> int:
    """The indexer's own cache, in the layers that run it."""
    if group.indexer is None:
        return 0
    running = group.indexer.layers
    count = len(group.layers if running is None else set(running) & set(group.layers))
    return count * indexer_bytes(group.indexer.head_dim)


def _kept(group: LayerGroup, tokens: int) -> int:
    bound = group.window or group.chunk
    return tokens if bound is None else min(tokens, bound)
