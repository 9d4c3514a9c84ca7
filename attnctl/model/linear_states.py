"""States of linear attention, of the delta rules, and of short convolutions."""

from __future__ import annotations

from attnctl.model.attention import HIDDEN, head_size_of, heads_of
from attnctl.model.keys import Keys, Value
from attnctl.model.spec import LayerGroup, State
from attnctl.model.states import need, ssm_dtype, state_sources


def gdn(text: Keys) -> LayerGroup:
    """Gated delta rule. conv_state [2 Hk Dk + Hv Dv, W - 1], ssm_state [Hv, Dv, Dk]."""
    k_heads = need(text, "key heads of linear attention", "linear_num_key_heads")
    v_heads = need(text, "value heads of linear attention", "linear_num_value_heads")
    k_dim = need(text, "key width of linear attention", "linear_key_head_dim")
    v_dim = need(text, "value width of linear attention", "linear_value_head_dim")
    conv = need(text, "convolution width", "linear_conv_kernel_dim")
    precision = ssm_dtype(text)
    channels = 2 * k_heads.value * k_dim.value + v_heads.value * v_dim.value
    return LayerGroup(
        kind="gdn",
        layers=(),
        state=State(
            type="gdn",
            conv_state=(channels, conv.value - 1),
            ssm_state=(v_heads.value, v_dim.value, k_dim.value),
            conv_kernel=conv.value,
            num_k_heads=k_heads.value,
            num_v_heads=v_heads.value,
            head_k_dim=k_dim.value,
            head_v_dim=v_dim.value,
            ssm_dtype=precision.value if precision else None,
        ),
        sources=state_sources(
            num_k_heads=k_heads, num_v_heads=v_heads, head_k_dim=k_dim, head_v_dim=v_dim,
            conv_kernel=conv, ssm_dtype=precision,
        ),
    )  # fmt: skip


def kda(text: Keys) -> LayerGroup:
    """Delta rule with a gate per channel. conv_state [3 H D, W - 1], ssm_state [H, D, D]."""
    where = "linear_attn_config."
    heads = need(
        text, "heads of linear attention", where + "num_heads", "linear_num_heads",
        "num_attention_heads",
    )  # fmt: skip
    width = need(
        text, "width of linear attention", where + "head_dim", "linear_head_dim", "head_dim"
    )
    conv = need(
        text, "convolution width", where + "short_conv_kernel_size", "linear_conv_kernel_dim",
        "short_conv_kernel_size",
    )  # fmt: skip
    stated = ssm_dtype(text)
    # the state of this rule is kept in float32 by the engines that run it unless told otherwise
    precision = stated or Value("float32", "vLLM keeps this state in float32 when set to auto")
    return LayerGroup(
        kind="kda",
        layers=(),
        state=State(
            type="kda",
            conv_state=(3 * heads.value * width.value, conv.value - 1),
            ssm_state=(heads.value, width.value, width.value),
            conv_kernel=conv.value,
            num_heads=heads.value,
            head_dim=width.value,
            ssm_dtype=precision.value,
        ),
        sources=state_sources(
            num_heads=heads, head_dim=width, conv_kernel=conv, ssm_dtype=precision
        ),
    )


def short_conv(text: Keys) -> LayerGroup:
    """Gated short convolution. conv_state [C, W - 1], C the width of the block."""
    width = need(text, "width of the convolution", "conv_dim", *HIDDEN)
    conv = need(text, "convolution width", "conv_L_cache")
    return LayerGroup(
        kind="short_conv",
        layers=(),
        state=State(
            type="short_conv",
            conv_state=(width.value, conv.value - 1),
            conv_kernel=conv.value,
        ),
        sources=state_sources(conv_state=width, conv_kernel=conv),
    )


def lightning(text: Keys) -> LayerGroup:
    """Linear attention with a decay per head. ssm_state [H, D, D]; KV heads play no part in it."""
    heads = heads_of(text)
    width = head_size_of(text, heads)
    precision = ssm_dtype(text)
    return LayerGroup(
        kind="linear",
        layers=(),
        state=State(
            type="lightning",
            ssm_state=(heads.value, width.value, width.value),
            num_heads=heads.value,
            head_dim=width.value,
            ssm_dtype=precision.value if precision else None,
        ),
        sources=state_sources(num_heads=heads, head_dim=width, ssm_dtype=precision),
    )
