"""What every attention layer needs: heads, KV heads, head width, soft cap, ALiBi, depth."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.model.keys import COUNT_LIMIT, LAYER_LIMIT, Keys, Value, first, shorten, sources
from attnctl.model.spec import LayerGroup

LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_transformer_layers",
    "layers",
    "decoder_layers",
    "num_decoder_layers",
)
HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed", "dim", "model_dim", "embed_dim")
HEADS = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "attention_heads",
    "decoder_attention_heads",
    "num_query_heads",
)
KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "kv_n_heads",
    "attn_config.kv_n_heads",
    "num_attention_groups",
    "n_kv_head",
    "num_kv_head",
)
HEAD_SIZE = (
    "head_dim",
    "kv_channels",
    "attention_head_dim",
    "attention_head_size",
    "hidden_size_per_head",
    "d_head",
    "d_kv",
)
MAX_POSITION = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
    "n_ctx",
    "context_length",
    "max_seqlen",
    "max_target_positions",
)
SINKS = ("has_sink", "use_sinks", "attention_sink", "attention_sinks", "use_attention_sinks")
_MULTI_QUERY = ("multi_query", "attn_config.multi_query", "multi_query_attention")


def depth_of(text: Keys, *names: str) -> Value[int]:
    """The number of layers; one, with a note, where neither file nor class says.

    Raises InputError where the file says that there are none.
    """
    given = text.count(*(names or LAYERS), limit=LAYER_LIMIT)
    given = given or text.count_or_default(*(names or LAYERS))
    if given is not None:
        return given
    none = first(*(text.whole(name) for name in names or LAYERS))
    if none is not None:
        raise text.wrong(none, "1 or more")
    text.note("the file states no number of layers: one layer is shown, costs are per layer")
    return Value(1, "one layer where none are stated")


def attention_of(text: Keys) -> LayerGroup:
    """A full-attention layer of this model, without layer ids."""
    heads = heads_of(text)
    kv_heads = kv_heads_of(text, heads)
    size = head_size_of(text, heads)
    cap = softcap_of(text)
    return LayerGroup(
        kind="full",
        layers=(),
        head_size=size.value,
        num_heads=heads.value,
        num_kv_heads=kv_heads.value,
        softcap=cap.value if cap else None,
        alibi=has_alibi(text),
        sinks=text.is_true(*SINKS),
        notes={**scale_notes(text, size.value), **dual_chunk_notes(text)},
        sources=sources(head_size=size, num_heads=heads, num_kv_heads=kv_heads, softcap=cap),
    )


def heads_of(text: Keys, *names: str) -> Value[int]:
    heads = _of_first_layer(text, names or HEADS)
    heads = heads or text.count_or_default(*_scalar(text, names or HEADS))
    if heads is None:
        raise text.missing("number of attention heads", *(names or HEADS)[:3])
    return heads


def kv_heads_of(text: Keys, heads: Value[int], *names: str) -> Value[int]:
    """The KV heads; as many as query heads where the file and the class leave them open."""
    if text.is_true("multi_query_attention") and (
        groups := text.count("multi_query_group_num", "num_multi_query_groups_for_attn")
    ):
        return checked(text, groups, heads)
    given = text.count(*_scalar(text, names or KV_HEADS))
    given = given or _of_first_layer(text, names or KV_HEADS)
    if given is not None:
        return checked(text, given, heads)
    if text.is_true(*_MULTI_QUERY) or _is_multi_query(text):
        return Value(1, "multi_query")
    assumed = text.count_or_default(*(names or KV_HEADS))
    if assumed is not None and heads.value % assumed.value == 0:
        return assumed
    return Value(heads.value, heads.source)


def _is_multi_query(text: Keys) -> bool:
    """True where a word says so: SantaCoder's attention_head_type."""
    given = text.raw("attention_head_type")
    return given is not None and given.value == "multiquery"


def checked(text: Keys, kv_heads: Value[int], heads: Value[int]) -> Value[int]:
    """The KV heads, if they divide the query heads."""
    if heads.value % kv_heads.value:
        raise text.wrong(kv_heads, f"a divisor of {heads.source} {heads.value}")
    return kv_heads


def head_size_of(text: Keys, heads: Value[int], *names: str) -> Value[int]:
    """The width of a head: stated (null and 0 do not count), assumed by the class, or derived."""
    return text.count_or_default(*(names or HEAD_SIZE)) or derived_head_size(text, heads)


def derived_head_size(text: Keys, heads: Value[int]) -> Value[int]:
    hidden = text.count_or_default(*HIDDEN)
    if hidden is None:
        raise text.missing("head width", "head_dim", *HIDDEN[:3])
    if hidden.value % heads.value:
        wanted = f"a multiple of {heads.source} {heads.value}, or a head_dim beside it,"
        raise text.wrong(hidden, wanted)
    return Value(hidden.value // heads.value, f"{hidden.source} / {heads.source}")


def softcap_of(text: Keys) -> Value[float] | None:
    names = ("attn_logit_softcapping", "attention_softcap", "attn_logit_softcap", "max_attn_value")
    given = text.number(*names)
    if given is None and not text.has(*names):
        assumed = text.default(*names)
        given = Value(float(assumed.value), assumed.source) if assumed else None
    return given if given is not None and given.value > 0 else None


def has_alibi(text: Keys) -> bool:
    if text.is_true("alibi", "attn_config.alibi", "use_alibi"):
        return True
    given = text.raw("position_embedding_type", "position_embedding", "pos_emb")
    return given is not None and isinstance(given.value, str) and given.value.lower() == "alibi"


def scale_notes(text: Keys, head_size: int) -> dict[str, Any]:
    """The softmax scale, where it is not that of the head width."""
    scalar = text.number("query_pre_attn_scalar")
    if scalar is None or scalar.value <= 0 or scalar.value == head_size:
        return {}
    whole = int(scalar.value)
    return {"scale_from": whole if whole == scalar.value else scalar.value}


def dual_chunk_notes(text: Keys) -> dict[str, Any]:
    """Dual-chunk attention: another way to attend, while the KV cache stays whole."""
    section = text.sub("dual_chunk_attention_config")
    if section is None:
        return {}
    given = {name: section.count(name) for name in ("chunk_size", "local_size")}
    return {"dual_chunk": {name: v.value for name, v in given.items() if v is not None}}


def max_position_of(text: Keys) -> Value[int] | None:
    """The longest context that the file states; null and 0 mean that it states none.

    So do, with a note, -1 and the huge numbers by which tokenizers say "no limit".
    """
    for name in MAX_POSITION:
        given = text.raw(name)
        if given is None or (given.value == 0 and not isinstance(given.value, bool)):
            continue
        if is_unlimited(given.value):
            text.note(f"{given.source} {shorten(given.value)} is no limit: none is counted with")
            continue
        return text.count(name)
    return None


def is_unlimited(value: object) -> bool:
    """True for the numbers by which a file says that a length has no limit."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and (value == -1 or value >= COUNT_LIMIT)  # type: ignore[operator]


def with_heads(
    group: LayerGroup,
    heads: Value[int] | None = None,
    kv_heads: Value[int] | None = None,
    size: Value[int] | None = None,
) -> LayerGroup:
    """The same group with other heads, KV heads or head width, and where they came from."""
    given = {"num_heads": heads, "num_kv_heads": kv_heads, "head_size": size}
    values: dict[str, Any] = {name: v.value for name, v in given.items() if v is not None}
    paths = {**group.sources, **sources(**given)}
    return msgspec.structs.replace(group, **values, sources=paths)


def _of_first_layer(text: Keys, names: tuple[str, ...]) -> Value[int] | None:
    """The first entry of a list with one entry per layer (variation.py gives each its own)."""
    key = next((name for name in names if isinstance(text.data.get(name), list)), None)
    given = text.wholes(key) if key is not None else None
    if given is None or not given.value or not given.value[0]:
        return None
    return Value(given.value[0], given.source)


def _scalar(text: Keys, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names without those that hold a list with one entry per layer."""
    return tuple(name for name in names if not isinstance(text.data.get(name), list))
