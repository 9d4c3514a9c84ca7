"""Fixed-size states of recurrent layers: shapes from the keys of each kind."""

from __future__ import annotations

from math import ceil

from attnctl.model import dtype
from attnctl.model.keys import Keys, Value, sources
from attnctl.model.spec import LayerGroup, State

_CONV = ("conv_kernel", "mamba_d_conv", "conv_dimension", "mamba_conv_kernel", "d_conv")
_STATE = ("ssm_state_size", "mamba_d_state", "state_size", "mamba_state_size", "d_state")
_EXPAND = ("mamba_expand", "expand", "expansion_factor")
_GROUPS = ("mamba_n_groups", "n_groups", "mamba_num_groups", "mamba_ngroups", "ngroups")
_HEADS = ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
_HEAD_DIM = ("mamba_head_dim", "mamba_d_head", "mamba_headdim", "headdim")
_HIDDEN = ("hidden_size", "n_embd", "d_model")


def need(text: Keys, what: str, *names: str) -> Value[int]:
    given = text.count_or_default(*names)
    if given is None:
        raise text.missing(what, *names)
    return given


def ssm_dtype(text: Keys) -> Value[str] | None:
    return dtype.stated(text, "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "ssm_cache_dtype")


def mamba1(text: Keys, inner: Value[int] | None = None) -> LayerGroup:
    """Selective scan. conv_state [C, W - 1], ssm_state [C, R], C the inner width."""
    width = inner or _expanded(text)
    conv = need(text, "convolution width", *_CONV)
    state = need(text, "state size", *_STATE)
    rank = _dt_rank(text)
    precision = ssm_dtype(text)
    return LayerGroup(
        kind="mamba1",
        layers=(),
        state=State(
            type="mamba1",
            conv_state=(width.value, conv.value - 1),
            ssm_state=(width.value, state.value),
            conv_kernel=conv.value,
            state_size=state.value,
            inner=width.value,
            dt_rank=rank.value if rank else None,
            ssm_dtype=precision.value if precision else None,
        ),
        sources=_state_sources(
            inner=width, conv_kernel=conv, state_size=state, dt_rank=rank, ssm_dtype=precision
        ),
    )


def mamba2(text: Keys, pure: bool = False) -> LayerGroup:
    """State-space duality. conv_state [inner + 2 groups R, W - 1], ssm_state [H, D, R].

    pure: a model of nothing but such layers, whose `num_heads` and `head_dim` are theirs.
    """
    inner, heads, head_dim = _mamba2_widths(text, pure)
    conv = need(text, "convolution width", *_CONV)
    state = need(text, "state size", *_STATE)
    groups = text.count_or_default(*_GROUPS) or Value(1, "one group where none are stated")
    precision = ssm_dtype(text)
    channels = inner.value + 2 * groups.value * state.value
    return LayerGroup(
        kind="mamba2",
        layers=(),
        state=State(
            type="mamba2",
            conv_state=(channels, conv.value - 1),
            ssm_state=(heads.value, head_dim.value, state.value),
            conv_kernel=conv.value,
            num_heads=heads.value,
            head_dim=head_dim.value,
            state_size=state.value,
            n_groups=groups.value,
            inner=inner.value,
            ssm_dtype=precision.value if precision else None,
        ),
        sources=_state_sources(
            inner=inner, num_heads=heads, head_dim=head_dim, conv_kernel=conv,
            state_size=state, n_groups=groups, ssm_dtype=precision,
        ),
    )  # fmt: skip


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
        sources=_state_sources(
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
        sources=_state_sources(
            num_heads=heads, head_dim=width, conv_kernel=conv, ssm_dtype=precision
        ),
    )


def short_conv(text: Keys) -> LayerGroup:
    """Gated short convolution. conv_state [C, W - 1], C the width of the block."""
    width = need(text, "width of the convolution", "conv_dim", *_HIDDEN)
    conv = need(text, "convolution width", "conv_L_cache")
    return LayerGroup(
        kind="short_conv",
        layers=(),
        state=State(
            type="short_conv",
            conv_state=(width.value, conv.value - 1),
            conv_kernel=conv.value,
        ),
        sources=_state_sources(conv_state=width, conv_kernel=conv),
    )


def lightning(text: Keys) -> LayerGroup:
    """Linear attention with a decay per head. ssm_state [H, D, D]; KV heads play no part in it."""
    from attnctl.model.attention import head_size_of, heads_of

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
        sources=_state_sources(num_heads=heads, head_dim=width, ssm_dtype=precision),
    )


def state_of(kind: str, text: Keys) -> LayerGroup:
    """The group template of one kind of state layer."""
    if kind == "mamba2":
        return mamba2(text)
    readers = {"mamba1": mamba1, "gdn": gdn, "kda": kda, "short_conv": short_conv}
    return readers[kind](text) if kind in readers else lightning(text)


def linear_kind(text: Keys) -> str:
    """What a "linear_attention" layer of an unknown family is, by the keys that describe it."""
    if text.has("linear_num_value_heads", "linear_key_head_dim"):
        return "gdn"
    if text.has("linear_attn_config", "linear_num_heads"):
        return "kda"
    return mamba_kind(text) if text.has(*_STATE) else "linear"


def mamba_kind(text: Keys) -> str:
    """What a "mamba" layer of an unknown family is: heads make it the second kind."""
    return "mamba2" if text.has(*_HEADS, *_HEAD_DIM) else "mamba1"


def _expanded(text: Keys) -> Value[int]:
    hidden = need(text, "hidden size", *_HIDDEN)
    factor = text.number(*_EXPAND) or text.default(*_EXPAND)
    if factor is None:
        raise text.missing("expansion factor", *_EXPAND)
    inner = int(float(factor.value) * hidden.value)
    if inner <= 0:
        raise text.wrong(factor, "a factor that leaves a positive width")
    return Value(inner, f"{factor.source} * {hidden.source}")


def _mamba2_widths(text: Keys, pure: bool) -> tuple[Value[int], Value[int], Value[int]]:
    """Inner width, heads and head width; heads x head width wins over the expansion factor."""
    heads, dim = _mamba2_heads(text, pure)
    if heads is not None and dim is not None:
        return Value(heads.value * dim.value, f"{heads.source} * {dim.source}"), heads, dim
    inner = text.count("mamba_d_ssm", "d_inner") or _expanded(text)
    if heads is not None:
        return inner, heads, ratio(text, inner, heads)
    if dim is None:
        raise text.missing("heads of the state", *_HEADS)
    return inner, ratio(text, inner, dim), dim


def _mamba2_heads(text: Keys, pure: bool) -> tuple[Value[int] | None, Value[int] | None]:
    """Heads and head width as stated, or both as the class assumes where neither is."""
    names = (*_HEADS, "num_heads") if pure else _HEADS
    widths = (*_HEAD_DIM, "head_dim") if pure else _HEAD_DIM
    width = text.raw(*widths)
    auto = width is not None and width.value == "auto"
    heads = text.count(*names)
    dim = None if auto else text.count(*widths)
    if heads is None and dim is None:
        heads = text.count_or_default(*names)
        dim = None if auto else text.count_or_default(*widths)
    return heads, dim


def ratio(text: Keys, inner: Value[int], by: Value[int]) -> Value[int]:
    """The one over the other, where that is a whole number."""
    if inner.value % by.value:
        raise text.wrong(by, f"a divisor of {inner.value} ({inner.source})")
    return Value(inner.value // by.value, f"{inner.source} / {by.source}")


def _dt_rank(text: Keys) -> Value[int] | None:
    given = text.raw("mamba_dt_rank", "time_step_rank", "dt_rank")
    if given is not None and given.value != "auto":
        return text.count("mamba_dt_rank", "time_step_rank", "dt_rank")
    hidden = text.count_or_default(*_HIDDEN)
    return Value(ceil(hidden.value / 16), f"{hidden.source} / 16") if hidden else None


def _state_sources(**values: Value[int] | Value[str] | None) -> dict[str, str]:
    return {f"state.{name}": path for name, path in sources(**values).items()}
