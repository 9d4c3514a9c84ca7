"""Sorts the key paths of a file into those that decided something, have no bearing, or are new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

# a key with one of these words in its name has no bearing on attention or state
_WORDS = frozenset(
    (
        "abs", "act", "activation", "adapter", "affine", "audio", "beam", "bias", "bos",
        "checkpoint", "class", "classifier", "clip", "clipping", "compile", "drop", "dropout",
        "early", "embd", "embed", "embedding", "embeddings", "eos", "eps", "epsilon", "expert",
        "experts", "factor", "ffn", "finetuning", "freeze", "gate", "generation", "hash", "id",
        "ids", "image", "images", "implementation", "index", "init", "initializer", "inner",
        "intermediate", "jitter", "kernels", "label", "label2id", "labels", "layerdrop",
        "layernorm", "length", "lm", "lora", "loss", "mlp", "moe", "mrope", "mtp", "multiplier",
        "norm", "normalization", "output", "pad", "parallel", "patch", "pdrop", "pooler",
        "pooling", "pretraining", "problem", "projector", "quant", "quantization", "range",
        "rescale", "residual", "return", "rms", "rope", "rotary", "routed", "router", "scale",
        "scaling", "scoring", "seed", "shared", "softmax", "special", "summary", "swiglu",
        "talker", "task", "temperature", "temporal", "theta", "tie", "tied", "time", "token",
        "tokenizer", "tokens", "tower", "tp", "trained", "training", "transformers", "tts",
        "unfreeze", "url", "version", "video", "vision", "vocab", "warmup", "weight",
    )
)  # fmt: skip
# names that are known here, whether or not they decided anything in this file
_NAMES = frozenset(
    (
        "add_cross_attention", "alibi", "architectures", "attention_chunk_size",
        "attention_head_dim", "attention_hidden_size", "attention_method",
        "attention_other_setting", "attention_projection_layout", "attention_window_size",
        "attn_config", "attn_hidden_size", "attn_implementation", "attn_logit_softcapping",
        "attn_window_size", "auto_map", "bf16", "block_dim", "cache_implementation",
        "chunk_size", "cla_share_factor", "clip_qkv", "code2wav_config", "compression_config",
        "conv_dim", "conv_kernel", "cross_attention_layers", "d_head", "d_inner", "d_model",
        "d_state", "decoder_attention_heads", "decoder_ffn_dim", "decoder_layers",
        "decoder_start_token_id", "dim", "do_layer_norm_before", "do_sample", "dtype",
        "encoder_attention_heads", "encoder_layers", "expand", "expansion_factor",
        "expansion_ratio", "final_logit_softcapping", "first_k_dense_replace", "flash_attn",
        "fp16", "fp32", "from_model_config", "full_attention_interval", "full_attn_mod",
        "gating", "global_attn_every_n_layers", "head_dim", "head_size", "head_width", "heads",
        "hidden_act", "hidden_activation", "hidden_size", "is_causal", "is_decoder",
        "is_encoder_decoder", "kq_head_dim", "kv_channels", "kv_lora_rank", "layer_switch",
        "layers", "license", "logits_soft_cap", "max_position_embeddings",
        "max_sequence_length", "max_window_layers", "model_dim", "model_max_length",
        "model_type", "multi_query", "n_ctx", "n_embd", "n_embed", "n_group", "n_groups",
        "n_head", "n_head_kv", "n_heads", "n_layer", "n_layers", "n_positions", "name_or_path",
        "o_groups", "o_lora_rank", "order_of_interleaved_layers", "original_rope",
        "partial_rotary_factor", "postnorm", "q_lora_rank", "qk_head_dim", "qk_layernorm",
        "qk_ln", "qk_nope_head_dim", "qk_rope_head_dim", "query_pre_attn_scalar",
        "scale_attn_weights", "seq_aux", "seq_length", "sliding_window",
        "sliding_window_pattern", "sliding_window_size", "ssm_state_size", "state_size",
        "topk_group", "topk_method", "torch_dtype", "use_bidirectional_attention", "use_cache",
        "use_cla", "use_mla", "use_qk_norm", "use_sliding_window", "v_head_dim",
    )
)  # fmt: skip
_PREFIXES = (
    *("mamba_", "linear_", "mm_", "blocksparse_", "sparse_"),
    *("attn_", "kv_", "num_", "swa_", "index_"),
)


class SortedKeys(msgspec.Struct, frozen=True):
    """Key paths, in the order of the file (used ones: sorted)."""

    used: tuple[str, ...]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]


def sort_keys(data: Mapping[str, Any], used: set[str]) -> SortedKeys:
    """Every key path of the file in one of three lists; an unread object is one path."""
    ignored: list[str] = []
    unknown: list[str] = []
    opened = used | {path[:cut] for path in used for cut in _cuts(path)}
    for path, name in _leaves(data, "", opened):
        if path not in used:
            (ignored if has_no_bearing(name) else unknown).append(path)
    return SortedKeys(tuple(sorted(used)), tuple(ignored), tuple(unknown))


def has_no_bearing(name: str) -> bool:
    """True for a key that is known here and need not be read."""
    plain = name.strip("_").lower()
    if plain in _NAMES or plain.startswith(_PREFIXES):
        return True
    return not _WORDS.isdisjoint(plain.split("_"))


def _cuts(path: str) -> Iterator[int]:
    return (i for i, letter in enumerate(path) if letter == ".")


def _leaves(data: Mapping[str, Any], path: str, opened: set[str]) -> Iterator[tuple[str, str]]:
    """(path, name) of each key; objects are opened where something inside them was read."""
    for name, value in data.items():
        here = f"{path}.{name}" if path else str(name)
        if isinstance(value, dict) and value and here in opened and not _is_aside(here):
            yield from _leaves(value, here, opened)
        else:
            yield here, str(name)


def _is_aside(path: str) -> bool:
    """True for objects that describe no layer of the text model: their inner keys are no news."""
    name = path.rpartition(".")[2]
    return name in ("quantization_config", "vision_config", "audio_config")
