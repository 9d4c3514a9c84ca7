"""Sorts the key paths of a file into those that decided something, have no bearing, or are new."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

# names with no bearing on which attention backend can run, at whatever depth they stand
_IGNORED = re.compile(
    r"""_?(
    architectures | auto_map | transformers_version | name_or_path | commit_hash | from_model_config
    | .*token.* | .*vocab.* | .*rope.* | .*rotary.* | .*expert.* | .*moe.* | .*router.* | .*dropout.*
    | .*drop | .*pdrop | .*act | .*activation.* | .*norm.* | .*_eps | .*epsilon | .*bias.* | .*init.*
    | .*intermediate.* | .*ffn.* | .*mlp.* | .*loss.* | .*embed.* | .*scal(e|ing|ar).* | .*multiplier.*
    | use_cache | tie_.* | torch_dtype | dtype | pretraining_tp | n_group | topk_(group|method)
    | first_k_dense_replace | scoring_func | seq_aux | num_nextn_predict_layers | mtp_.* | .*_mtp_.*
    | .*label.* | problem_type | task_specific_params | output_.* | return_.* | .*classif.* | .*pooler.*
    | pruned_heads | chunk_size_feed_forward | is_decoder | is_encoder_decoder | add_cross_attention
    | attn_implementation.* | flash_attn | use_flash.* | use_mamba_kernels | use_qk_norm | qk_layernorm
    | .*time_step.* | residual.* | rescale.* | quant.* | compression_config | q_lora_rank | .*logits?.*
    | .*summary.* | .*image.* | .*video.* | .*audio.* | .*vision.* | mm_.* | .*projector.* | .*patch.*
    | .*talker.* | .*code2wav.* | generation.* | .*beam.* | .*length.* | temperature | top_[kp]
    | use_.*_lora | lora_rank | .*lora.* | .*adapter.* | freeze.* | unfreeze.* | .*special.* | .*seed
    | cache_implementation | original_max_position_embeddings | .*parallel.* | .*checkpoint.*
    | decoder_start.* | forced_.* | layerdrop | .*layerdrop | license | .*version.* | id2label | label2id
    )""",
    re.VERBOSE,
)


class SortedKeys(msgspec.Struct, frozen=True):
    used: tuple[str, ...]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]


def sort_keys(data: Mapping[str, Any], used: set[str]) -> SortedKeys:
    """Every key path of the file in one of three lists; an unread object of no bearing is one path."""
    ignored: list[str] = []
    unknown: list[str] = []
    prefixes = {path[:cut] for path in used for cut in _cuts(path)}
    for path, name in _leaves(data, "", used | prefixes):
        if path not in used:
            (ignored if _IGNORED.fullmatch(name) else unknown).append(path)
    return SortedKeys(tuple(sorted(used)), tuple(ignored), tuple(unknown))


def _cuts(path: str) -> Iterator[int]:
    return (i for i, letter in enumerate(path) if letter == ".")


def _leaves(data: Mapping[str, Any], path: str, opened: set[str]) -> Iterator[tuple[str, str]]:
    """(path, name) of each key; objects are opened where something inside them was read."""
    for name, value in data.items():
        here = f"{path}.{name}" if path else str(name)
        inside = isinstance(value, dict) and value and here in opened
        if inside and not _IGNORED.fullmatch(str(name)):
            yield from _leaves(value, here, opened)
        else:
            yield here, str(name)
