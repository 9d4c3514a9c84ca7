"""Recurrent models that no backend here keeps a state for: Griffin, RWKV, xLSTM."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from attnctl.model import windows
from attnctl.model.attention import HIDDEN, attention_of, depth_of, heads_of
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import names_in_file, repeated
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup, State
from attnctl.model.states import need, ratio


def griffin(config: Config) -> tuple[LayerGroup, ...]:
    """RecurrentGemma: local attention on the last of each three, gated linear recurrence before."""
    text = config.text
    depth = depth_of(text).value
    names = _blocks(text, depth)
    local = windows.slid(attention_of(text), windows.window_or_default(text), text)
    state = _rg_lru(text)

    def of_name(name: str) -> Sequence[LayerGroup]:
        group = state if name in ("recurrent", "linear") else local
        return [msgspec.structs.replace(group, sources={**group.sources, "kind": names.source})]

    return assemble(names.value, of_name)


def rwkv(config: Config) -> tuple[LayerGroup, ...]:
    """No attention: a matrix state per head (a few vectors in version 4) and shifted tokens."""
    text = config.text
    hidden = need(text, "hidden size", *HIDDEN)
    inner = text.count("attention_hidden_size") or hidden
    size = text.count("head_size", "head_dim")
    if text.model_type == "rwkv" and size is None:
        shape: tuple[int, ...] = (3, inner.value)
    else:
        size = size or Value(64, "head width of every published model")
        shape = (ratio(text, inner, size).value, size.value, size.value)
    state = State(
        type=_VERSIONS.get(text.model_type or "", text.model_type or "rwkv"),
        ssm_state=shape,
        token_shift=(2, hidden.value),
        ssm_dtype="float32",
    )
    return _all_layers(text, state, {"state.inner": inner.source})


def xlstm(config: Config) -> tuple[LayerGroup, ...]:
    """A matrix memory per head."""
    text = config.text
    hidden, heads = need(text, "hidden size", *HIDDEN), heads_of(text)
    key, value = (_width(text, hidden, heads, name) for name in _FACTORS)
    state = State(type="mlstm", ssm_state=(heads.value, key, value), num_heads=heads.value)
    return _all_layers(text, state, {"state.num_heads": heads.source})


def _all_layers(text: Keys, state: State, paths: dict[str, str]) -> tuple[LayerGroup, ...]:
    layers = tuple(range(depth_of(text, *_LAYERS).value))
    return (LayerGroup(kind="recurrent_other", layers=layers, state=state, sources=paths),)


_VERSIONS = {"rwkv": "rwkv4"}  # the type without a number is the fourth
_LAYERS = ("num_hidden_layers", "num_blocks", "n_layer")


def _blocks(text: Keys, depth: int) -> Value[list[str]]:
    for key in ("_block_types", "block_types"):
        found = repeated(text, key, depth)
        if found is not None:
            return found
    listed = names_in_file(text, depth)
    cycle = ("recurrent", "recurrent", "full")
    return listed or Value([cycle[i % 3] for i in range(depth)], f"pattern of {text.model_type}")


def _rg_lru(text: Keys) -> LayerGroup:
    width = text.count("lru_width") or need(text, "width of the recurrence", "lru_width", *HIDDEN)
    conv = need(text, "convolution width", "conv1d_width")
    state = State(
        type="rg_lru",
        conv_state=(width.value, conv.value - 1),
        ssm_state=(width.value,),
        conv_kernel=conv.value,
        ssm_dtype="float32",
    )
    paths = {"state.ssm_state": width.source, "state.conv_kernel": conv.source}
    return LayerGroup(kind="recurrent_other", layers=(), state=state, sources=paths)


_FACTORS = {"qk_dim_factor": 0.5, "v_dim_factor": 1.0}  # what the class of xlstm assumes


def _width(text: Keys, hidden: Value[int], heads: Value[int], key: str) -> int:
    """The head width: hidden x factor, rounded up to 64 as the model does, over the heads."""
    given = text.number(key)
    exact = hidden.value * (given.value if given is not None else _FACTORS[key])
    if not 0 < exact < 2**40:
        raise text.wrong(given or hidden, "a factor that leaves a positive width")
    whole = Value(-(-int(exact) // 64) * 64 or 64, f"{hidden.source} * {key}")
    return ratio(text, whole, heads).value
