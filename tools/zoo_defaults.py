"""Adds to attnctl/model/class_defaults.json what the dumped configs state for some more keys.

    python tools/zoo_defaults.py      after `python tools/zoo.py --dump-only`

Entries that are there stay as they are; only keys named here are added. Layer patterns are kept as
one period where they are periodic.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "attnctl" / "model" / "class_defaults.json"
KEYS = (
    "aligner_num_add_layers",
    "attention_downsample_rate",
    "attention_logit_cap",
    "attention_ratio",
    "attention_window",
    "attn_logit_softcapping",
    "block_repeats",
    "block_sizes",
    "blocks_per_stage",
    "cca_time0",
    "cca_time1",
    "conf_attention_logit_cap",
    "conf_num_attention_heads",
    "conf_num_hidden_layers",
    "conv_kernel_size",
    "cross_attention_frequency",
    "cross_head_dim",
    "cross_layer_interval",
    "cross_num_attention_heads",
    "cross_num_key_value_heads",
    "d_head",
    "d_latents",
    "decoder_hidden_dim",
    "decoder_num_attention_heads",
    "decoder_num_heads",
    "decoder_num_hidden_layers",
    "decoder_num_layers",
    "decoder_self_attention_heads",
    "depths",
    "dim",
    "dim_head",
    "emb_dim",
    "embed_dim_multiplier",
    "embed_dim_per_stage",
    "encoder_hidden_dim",
    "encoder_num_attention_heads",
    "encoder_num_hidden_layers",
    "fullatt_block_indexes",
    "global_attn_indexes",
    "gnn_layers_types",
    "head_ratio",
    "hidden_dim",
    "hidden_sizes",
    "key_dim",
    "l_layers",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "local_attention",
    "local_radius",
    "num_attention_heads_per_stage",
    "num_attention_layers",
    "num_auxiliary_layers",
    "num_blocks",
    "num_cross_attention_heads",
    "num_decoder_attention_heads",
    "num_encoder_attention_heads",
    "num_encoder_layers",
    "num_global_layers",
    "num_self_attends_per_block",
    "num_self_attention_heads",
    "num_spatial_layers",
    "num_temporal_layers",
    "patch_embeds_hidden_size",
    "r_layers",
    "rel_extent",
    "resampler_depth",
    "resampler_head_dim",
    "resampler_n_heads",
    "sliding_window",
    "sliding_windows",
    "speech_encoder_attention_heads",
    "speech_encoder_layers",
    "true_hidden_size",
    "x_layers",
)
# only for types whose heads the table does not hold: elsewhere it says all there is to say
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_heads",
    "n_head",
)
LONGEST_PERIOD = 12


def period(types: list[str]) -> list[str]:
    """The shortest list that repeats to `types`, or `types` where none of at most twelve does."""
    for length in range(1, LONGEST_PERIOD + 1):
        if 2 * length <= len(types) and all(
            kind == types[i % length] for i, kind in enumerate(types)
        ):
            return types[:length]
    return types


def sizes(config: dict[str, Any]) -> dict[str, Any]:
    """The plain sizes, without those that the class computes from the others."""
    found = {key: config[key] for key in SIZES if config.get(key)}
    heads, hidden = found.get("num_attention_heads"), found.get("hidden_size")
    if found.get("num_key_value_heads") == heads:
        found.pop("num_key_value_heads", None)
    if (
        isinstance(heads, int)
        and isinstance(hidden, int)
        and found.get("head_dim") == hidden // heads
    ):
        found.pop("head_dim")
    return found if heads or "num_heads" in found else {}


def additions(config: dict[str, Any]) -> dict[str, Any]:
    """What one default config has to say for the keys named here; nulls and zeros say nothing."""
    found = {key: config[key] for key in KEYS if config.get(key)}
    types = config.get("layer_types")
    if types and set(types) != {"full_attention"} and "bottleneck" not in types:
        found["layer_types"] = period(types)
    return found


def main() -> None:
    table = json.loads(TABLE.read_text("utf-8"))
    defaults: dict[str, dict[str, Any]] = table["defaults"]
    for path in sorted((ROOT / ".zoo" / "configs").glob("*.json")):
        config = json.loads(path.read_text("utf-8"))
        found = additions(config)
        if "num_attention_heads" not in defaults.get(path.stem, {}):
            found |= sizes(config)
        if found:
            known = defaults.setdefault(path.stem, {})
            known.update({key: value for key, value in found.items() if key not in known})
    TABLE.write_text(as_text(table), encoding="utf-8")


def as_text(table: dict[str, Any]) -> str:
    """The table with one line per entry, so that a change is one line of a diff."""
    blocks = [f'"source": {json.dumps(table["source"])}']
    for part in ("text", "defaults"):
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(table[part].items()))
        blocks.append(f'"{part}": {{\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


if __name__ == "__main__":
    main()
