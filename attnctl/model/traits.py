"""What sets a model type apart from the plain decoder, as data: patterns, sinks, positions.

Only what a config.json does not say for itself is listed. A type that needs more than this has a
module of its own (see families.py).
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Cycle(msgspec.Struct, frozen=True):
    """One layer of each `period` is `minority`, the others `majority`.

    keys: where a file may give the period. end: whether the odd one out is the last or the first
    of its group.
    """

    period: int
    end: Literal["last", "first"] = "last"
    keys: tuple[str, ...] = ()
    majority: str = "sliding"
    minority: str = "full"


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """cycle: the pattern of layers where the file lists none.
    linear: what "linear_attention" and "mamba" layers are in this family.
    gated: a window is off unless use_sliding_window is true.
    slides: the window of the class holds on all layers where the file is silent.
    sinks: learned sinks in every attention layer, without a key that says so.
    nope: which attention layers have no position encoding.
    """

    cycle: Cycle | None = None
    linear: str | None = None
    gated: bool = False
    slides: bool = False
    sinks: bool = False
    alibi: bool = False
    nope: Literal["none", "full", "all"] = "none"


_PATTERN = ("sliding_window_pattern", "_sliding_window_pattern")
_INTERVAL = ("full_attention_interval",)
_GDN = Traits(linear="gdn", cycle=Cycle(4, "last", _INTERVAL, majority="linear"))
_GATED = Traits(gated=True)
_GEMMA3 = Traits(cycle=Cycle(6, "last", _PATTERN))
_LAST_OF_4 = Traits(cycle=Cycle(4, "last", _PATTERN))

TRAITS: dict[str, Traits] = {
    "afmoe": Traits(cycle=Cycle(4, "last", ("global_attn_every_n_layers",)), nope="full"),
    "bloom": Traits(alibi=True),
    "cohere2": Traits(cycle=Cycle(4, "last", _PATTERN), nope="full"),
    "cohere2_moe": Traits(cycle=Cycle(4, "last", _PATTERN), nope="full"),
    "cwm": Traits(cycle=Cycle(4, "first")),
    "exaone4": Traits(cycle=Cycle(4, "last", _PATTERN), nope="full"),
    "exaone4_5_text": Traits(cycle=Cycle(4, "last", _PATTERN), nope="full"),
    "exaone_moe": Traits(cycle=Cycle(4, "last", _PATTERN), nope="full"),
    "gemma2": Traits(cycle=Cycle(2)),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gpt_oss": Traits(cycle=Cycle(2), sinks=True),
    "flint": Traits(sinks=True),
    "granite_swa": Traits(cycle=Cycle(4, "first"), sinks=True),
    "granitemoe_swa": Traits(cycle=Cycle(4, "first"), sinks=True),
    "inkling2_text": Traits(sinks=True),
    "kolibri1": Traits(cycle=Cycle(5)),
    "lfm2": Traits(linear="short_conv"),
    "lfm2_moe": Traits(linear="short_conv"),
    "kyutai_speech_to_text": Traits(slides=True),
    "ministral": Traits(slides=True),
    "mistral": Traits(slides=True),
    "moshi": Traits(slides=True),
    "moshi_depth": Traits(slides=True),
    "modernbert-decoder": Traits(cycle=Cycle(3, "first", ("global_attn_every_n_layers",))),
    "olmo3": _LAST_OF_4,
    "olmo_hybrid": _GDN,
    "qwen2": _GATED,
    "qwen2_5_omni_text": _GATED,
    "qwen2_5_vl": _GATED,
    "qwen2_5_vl_text": _GATED,
    "qwen2_moe": _GATED,
    "qwen2_vl": _GATED,
    "qwen2_vl_text": _GATED,
    "qwen3": _GATED,
    "qwen3_5": _GDN,
    "qwen3_5_moe": _GDN,
    "qwen3_5_moe_text": _GDN,
    "qwen3_5_text": _GDN,
    "qwen3_moe": _GATED,
    "qwen3_next": _GDN,
    "qwen3_omni_moe_text": _GATED,
    "qwen3_vl_moe_text": _GATED,
    "qwen3_vl_text": _GATED,
    "smollm3": _GATED,
    "t5gemma2_text": _GEMMA3,
    "t5gemma2_decoder": _GEMMA3,
    "voxtral_realtime_text": Traits(slides=True),
    "vaultgemma": Traits(cycle=Cycle(2)),
    "plamo3": Traits(cycle=Cycle(8, "last", _PATTERN)),
    "openai_privacy_filter": Traits(slides=True, sinks=True),
}

PLAIN = Traits()


def traits_of(model_type: str | None) -> Traits:
    return TRAITS.get(model_type, PLAIN) if model_type is not None else PLAIN
