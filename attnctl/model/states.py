"""Fixed-size states of recurrent layers: shapes from the keys of each kind."""

from __future__ import annotations

from math import ceil

from attnctl.model import dtype
from attnctl.model.attention import HIDDEN
from attnctl.model.keys import Keys, Value, sources
from attnctl.model.spec import LayerGroup, State

_CONV = ("conv_kernel", "mamba_d_conv", "conv_dimension", "mamba_conv_kernel", "d_conv")
STATE_SIZE = ("ssm_state_size", "mamba_d_state", "state_size", "mamba_state_size", "d_state")
_EXPAND = ("mamba_expand", "expand", "expansion_factor")
_GROUPS = ("mamba_n_groups", "n_groups", "mamba_num_groups", "mamba_ngroups", "ngroups")
HEADS = ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
HEAD_WIDTH = ("mamba_head_dim", "mamba_d_head", "mamba_headdim", "headdim")


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
    state = need(text, "state size", *STATE_SIZE)
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
        sources=state_sources(
            inner=width, conv_kernel=conv, state_size=state, dt_rank=rank, ssm_dtype=precision
        ),
    )


def mamba2(text: Keys, pure: bool = False) -> LayerGroup:
    """State-space duality. conv_state [inner + 2 groups R, W - 1], ssm_state [H, D, R].

    pure: a model of nothing but such layers, whose `num_heads` and `head_dim` are theirs.
    """
    inner, heads, head_dim = _mamba2_widths(text, pure)
    conv = need(text, "convolution width", *_CONV)
    state = need(text, "state size", *STATE_SIZE)
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
        sources=state_sources(
            inner=inner, num_heads=heads, head_dim=head_dim, conv_kernel=conv,
            state_size=state, n_groups=groups, ssm_dtype=precision,
        ),
    )  # fmt: skip


def _expanded(text: Keys) -> Value[int]:
    hidden = need(text, "hidden size", *HIDDEN)
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
        raise text.missing("heads of the state", *HEADS)
    return inner, ratio(text, inner, dim), dim


def _mamba2_heads(text: Keys, pure: bool) -> tuple[Value[int] | None, Value[int] | None]:
    """Heads and head width as stated, or both as the class assumes where neither is."""
    names = (*HEADS, "num_heads") if pure else HEADS
    widths = (*HEAD_WIDTH, "head_dim") if pure else HEAD_WIDTH
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
    hidden = text.count_or_default(*HIDDEN)
    return Value(ceil(hidden.value / 16), f"{hidden.source} / 16") if hidden else None


def state_sources(**values: Value[int] | Value[str] | None) -> dict[str, str]:
    return {f"state.{name}": path for name, path in sources(**values).items()}
