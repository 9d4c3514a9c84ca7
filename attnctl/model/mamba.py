"""Models of nothing but Mamba layers; they have no KV cache, whatever their keys are called."""

from __future__ import annotations

import msgspec

from attnctl.model import states
from attnctl.model.attention import attention_of, depth_of
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup


def mamba1(config: Config) -> tuple[LayerGroup, ...]:
    """Mamba and FalconMamba: a stated intermediate_size wins over expand x hidden size."""
    text = config.text
    layer = states.mamba1(text, text.count("intermediate_size", "d_inner"))
    return _all_layers(config, layer)


def mamba2(config: Config) -> tuple[LayerGroup, ...]:
    """num_heads and head_dim are those of the state."""
    return _all_layers(config, states.mamba2(config.text, pure=True))


def original(config: Config) -> tuple[LayerGroup, ...]:
    """Files of the mamba_ssm package: no model_type, the layer described by ssm_cfg.

    Layers of attn_layer_idx are attention, as attn_cfg describes them.
    """
    text = config.text
    inner = text.sub("ssm_cfg")
    second = inner is not None and inner.data.get("layer") == "Mamba2"
    stated = dict(inner.data) if inner is not None else {}
    merged = {**(_MAMBA2 if second else _MAMBA1), **text.data, **stated}
    keys = Keys(merged, text.path, text.ledger)
    state = states.mamba2(keys) if second else states.mamba1(keys)
    listed = text.wholes("attn_layer_idx")
    chosen = frozenset(listed.value if listed is not None else ())
    attention = attention_of(_attention_keys(text)) if chosen else None
    names = [i in chosen for i in range(depth_of(text).value)]
    return assemble(names, lambda full: [attention] if full and attention else [state])


# what the layers of mamba_ssm assume where ssm_cfg is silent
_MAMBA1 = {"d_state": 16, "d_conv": 4, "expand": 2}
_MAMBA2 = {"d_state": 128, "d_conv": 4, "expand": 2, "headdim": 64, "ngroups": 1}


def _attention_keys(text: Keys) -> Keys:
    section = text.sub("attn_cfg")
    inner = section.data if section is not None else {}
    return Keys({**text.data, **inner}, section.path if section else "", text.ledger)


def _all_layers(config: Config, layer: LayerGroup) -> tuple[LayerGroup, ...]:
    depth = depth_of(config.text)
    return (msgspec.structs.replace(layer, layers=tuple(range(depth.value))),)
