"""Models of flash-linear-attention: one recurrence, and attention on the layers of `attn`."""

from __future__ import annotations

from collections.abc import Sequence

from attnctl.model import windows
from attnctl.model.attention import HIDDEN, attention_of, depth_of, heads_of
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value
from attnctl.model.linear_states import gdn
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup, State
from attnctl.model.states import need

EXPANSIONS = {
    "delta_net": (1.0, 1.0),
    "gla": (0.5, 1.0),
    "linear_attn": (1.0, 1.0),
    "retnet": (1.0, 2.0),
}
"""Model type -> widths of all keys and of all values over the hidden size, as its class assumes."""

_GATED_VALUES = 2.0
_GATED_WIDTH = 256
_TAPS = 4


def read(config: Config) -> tuple[LayerGroup, ...]:
    """The recurrence on every layer that `attn.layers` does not name."""
    text = config.innermost({*EXPANSIONS, "gated_deltanet"})
    state = _gated(text) if text.model_type == "gated_deltanet" else _plain(text)
    section = text.sub("attn")
    listed = section.wholes("layers") if section is not None else None
    chosen = frozenset(listed.value if listed is not None else ())
    attention = _attention(text, section) if section is not None and chosen else None

    def of_name(full: bool) -> Sequence[LayerGroup]:
        return [attention] if full and attention is not None else [state]

    return assemble([i in chosen for i in range(depth_of(text).value)], of_name)


def _attention(text: Keys, section: Keys) -> LayerGroup:
    keys = Keys({**text.data, "head_dim": None, **section.data}, section.path, text.ledger)
    return windows.slid(attention_of(keys), windows.window_of(keys, "window_size"), keys)


def _gated(text: Keys) -> LayerGroup:
    """Gated DeltaNet: keys and queries of head_dim, values expand_v times as wide."""
    heads = heads_of(text)
    values = text.count("num_v_heads") or heads
    width = text.count("head_dim") or Value(_GATED_WIDTH, "head_dim of the class")
    factor = text.number("expand_v")
    wide = int(width.value * (factor.value if factor is not None else _GATED_VALUES))
    taps = text.count("conv_size") or Value(_TAPS, "conv_size of the class")
    named = {
        "linear_num_key_heads": heads.value,
        "linear_num_value_heads": values.value,
        "linear_key_head_dim": width.value,
        "linear_value_head_dim": wide,
        "linear_conv_kernel_dim": taps.value,
    }
    return gdn(Keys({**text.data, **named}, text.path, text.ledger, text.model_type))


def _plain(text: Keys) -> LayerGroup:
    """A matrix per head that no backend here keeps: [H, Dv, Dk]."""
    hidden, heads = need(text, "hidden size", *HIDDEN), heads_of(text)
    usual = EXPANSIONS[text.model_type or ""]
    key, value = (
        _share(text, name, assumed, hidden, heads)
        for name, assumed in zip(("expand_k", "expand_v"), usual, strict=True)
    )
    state = State(
        type=text.model_type or "", ssm_state=(heads.value, value, key), num_heads=heads.value
    )
    paths = {"state.num_heads": heads.source}
    return LayerGroup(kind="recurrent_other", layers=(), state=state, sources=paths)


def _share(text: Keys, name: str, assumed: float, hidden: Value[int], heads: Value[int]) -> int:
    given = text.number(name)
    whole = int(hidden.value * (given.value if given is not None else assumed))
    if whole <= 0 or whole % heads.value:
        raise text.wrong(given or hidden, f"what divides among {heads.value} heads")
    return whole // heads.value
