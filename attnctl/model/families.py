"""Which module reads which model type.

A family is a module with a function `(Config) -> tuple[LayerGroup, ...]`; it is listed here as
"module:function" beside the model types that it serves, and imported when one of them is read. To
add a family, write the module and add its entry; nothing else changes. The model type of the whole
file is looked up first, then that of the text model inside it; a type that is in neither table is
read from the generic keys (decoder.py).

Families of encoders and encoder-decoders are listed in encoder_types.py in the same form.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import TRAITS

Reader = Callable[[Config], tuple[LayerGroup, ...]]

PACKAGE = "attnctl.model"
GENERIC = "decoder:read"

FAMILIES: dict[str, tuple[str, ...]] = {
    "baichuan:read": ("baichuan",),
    "bailing:read": ("bailing_hybrid", "bailing_moe_linear", "bailing_moe_v2_5"),
    "bamba:bamba": ("bamba",),
    "bamba:falcon_h1": ("falcon_h1",),
    "bamba:granite": ("granitemoehybrid",),
    "convolved:inkling": ("inkling_text", "inkling2_text"),
    "convolved:reference_window": ("unlimited_ocr_text",),
    "convolved:zaya": ("zaya",),
    "deepseek_v4:read": ("deepseek_v4",),
    "falcon:falcon": ("falcon", "RefinedWeb", "RefinedWebModel"),
    "falcon:gpt_bigcode": ("gpt_bigcode",),
    "fla:read": ("delta_net", "gated_deltanet", "gla", "linear_attn", "retnet"),
    "gated_cross:blt": ("blt",),
    "gated_cross:byte_level": ("blt_local_decoder", "blt_local_encoder"),
    "gated_cross:evolla": ("evolla", "EvollaModel"),
    "gated_cross:idefics": ("idefics",),
    "gemma:gemma3n": ("gemma3n", "gemma3n_text"),
    "gemma:gemma4": (
        "gemma4",
        "gemma4_text",
        "gemma4_unified_text",
        "diffusion_gemma_text",
    ),
    "gpt_neo:read": ("gpt_neo",),
    "heads:read": ("medusa", "mlp_speculator"),
    "hunyuan:read": ("hunyuan", "hunyuan_v1_dense", "hunyuan_v1_moe"),
    "hymba:read": ("hymba",),
    "jamba:read": ("jamba",),
    "kimi_linear:read": ("kimi_linear",),
    "llama4:read": ("llama4", "llama4_text"),
    "longcat:read": ("longcat_flash", "longcat_flash_ngram"),
    "mamba:mamba1": ("mamba", "falcon_mamba"),
    "mamba:mamba2": ("mamba2",),
    "mimo:read": ("mimo_v2", "mimo_v2_flash"),
    "minimax:read": ("minimax", "minimax_m1", "minimax_m2", "minimax_text_01"),
    "mllama:read": ("mllama", "mllama_text_model"),
    "mpt:read": ("mpt",),
    "nemotron:hybrid": ("nemotron_h",),
    "nemotron:pruned": ("nemotron-nas",),
    "overrides:read": ("dots3_note_text",),
    "phi3small:read": ("phi3small",),
    "plamo:plamo": ("plamo",),
    "plamo:plamo2": ("plamo2",),
    "plamo:plamo3": ("plamo3",),
    "prefix_lm:read": ("paligemma",),
    "recurrent:griffin": ("recurrent_gemma",),
    "recurrent:rwkv": ("rwkv", "rwkv5", "rwkv6", "rwkv7"),
    "recurrent:xlstm": ("xlstm",),
    "samba:phi4flash": ("phi4flash",),
    "shared_index:read": ("glm_moe_dsa", "hy_v4", "mistral_large4_text"),
    "smallthinker:read": ("smallthinker",),
    "step3:read": ("step3p5", "step3p7"),
    "zamba:zamba1": ("zamba",),
    "zamba:zamba2": ("zamba2",),
}


# types whose files are plain decoders and that only the model repositories define
PLAIN_TYPES = frozenset(
    (
        "InternLM", "NVLM_D", "Yi", "aquila", "arctic", "bailing_moe", "bailing_moe_v2",
        "chatglm", "codeshell", "deci", "deepseek", "deepseek_vl_v2", "gritlm", "grok-1",
        "h2ovl_chat", "hf_olmo", "internlm", "internlm2", "internlm3", "internlmxcomposer2",
        "internvl_chat", "jais", "kimi_k2", "llava_llama", "llava_qwen", "mimo", "minicpm",
        "minicpmo", "minicpmv", "minimax_m3", "minimax_m3_text", "molmo", "openelm", "orion",
        "ovis", "pangu", "phi-msft", "phi4mm", "qwen", "skywork", "solar", "step3_text",
        "telechat", "xverse",
    )
)  # fmt: skip


def home_of(model_type: str | None) -> str | None:
    """The "module:function" that reads this model type, or None."""
    if model_type is None:
        return None
    from attnctl.model.encoder_types import ENCODERS

    for table in (FAMILIES, ENCODERS):
        for home, served in table.items():
            if model_type in served:
                return home
    return None


def reader_of(config: Config) -> Reader:
    """The function that reads this config."""
    types = (config.root.model_type, *(keys.model_type for keys in config.chain[1:]))
    home = next((h for t in types if (h := home_of(t)) is not None), GENERIC)
    if home == GENERIC and config.root.has("ssm_cfg"):
        home = "mamba:original"
    if home == GENERIC:
        from attnctl.model.encoder_types import generic_home

        home = generic_home(config) or GENERIC
        _remark(config)
    module, function = home.split(":")
    reader: Reader = getattr(import_module(f"{PACKAGE}.{module}"), function)
    return reader


def is_foreign(model_type: str | None) -> bool:
    """True where nobody here knows the model type: its keys alone can say what it is."""
    from attnctl.model.class_defaults import is_known

    if model_type is None:
        return True
    if model_type in PLAIN_TYPES or model_type in TRAITS or home_of(model_type) is not None:
        return False
    return not is_known(model_type)


def _remark(config: Config) -> None:
    """Says so where nobody here knows the model type that is read from the generic keys."""
    model_type = config.text.model_type or config.root.model_type
    if model_type is None:
        config.root.note("no model_type: read from the generic keys")
    elif is_foreign(model_type):
        config.root.note(f"model type {model_type!r} is not known here: read from the generic keys")
