"""The state of a layer again from the shapes of its tensors, as a profile keeps them."""

from __future__ import annotations

from collections.abc import Callable

from attnctl.model.spec import State
from attnctl.profile.values import Shape


def state_of(shape: Shape) -> State | None:
    """What state_shapes of attnctl.caches gives these shapes for; None where the layer keeps none.

    Widths are those of one rank, so that it is the state of a model without ranks.
    """
    maker: Callable[..., State] | None = _MAKERS.get(
        "kda" if "kda_gate" in shape.features else shape.op
    )
    if maker is None or not shape.state:
        return None
    try:
        return maker(*shape.state)
    except (TypeError, ValueError):  # other tensors than the operation has: nothing can be said
        return None


_Row = tuple[int, ...]


def _gdn(conv: _Row, ssm: _Row) -> State:
    (rows, channels), (heads, value, key) = conv, ssm
    return State(
        type="gdn",
        conv_kernel=rows + 1,
        num_k_heads=max(1, (channels - heads * value) // (2 * key)),
        num_v_heads=heads,
        head_k_dim=key,
        head_v_dim=value,
    )


def _kda(conv: _Row, ssm: _Row) -> State:
    (rows, channels), (heads, width, _) = conv, ssm
    keys = max(1, (channels - heads * width) // (2 * width))
    return State(
        type="kda", conv_kernel=rows + 1, num_heads=heads, head_dim=width, num_k_heads=keys
    )


def _mamba1(conv: _Row, ssm: _Row) -> State:
    (rows, channels), (_, size) = conv, ssm
    return State(type="mamba1", conv_kernel=rows + 1, inner=channels, state_size=size)


def _mamba2(conv: _Row, ssm: _Row) -> State:
    (rows, channels), (heads, width, size) = conv, ssm
    return State(
        type="mamba2",
        conv_kernel=rows + 1,
        num_heads=heads,
        head_dim=width,
        n_groups=max(1, (channels - heads * width) // (2 * size)),
        state_size=size,
        inner=heads * width,
    )


def _short_conv(conv: _Row) -> State:
    return State(type="short_conv", conv_kernel=conv[0] + 1, inner=conv[1])


def _linear(ssm: _Row) -> State:
    return State(type="linear", num_heads=ssm[0], head_dim=ssm[1])


_MAKERS: dict[str, Callable[..., State]] = {
    "gdn": _gdn,
    "kda": _kda,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "short_conv": _short_conv,
    "linear": _linear,
}
