"""Bytes of the states that recurrent layers keep: shapes and dtypes per kind of layer.

Pure functions over attnctl.model.spec.State and plain integers: nothing here knows an engine or a
device. The shapes are those that vLLM 0.33 allocates (convolution rows first, channels last; one
packed slot per sequence). Pages of attention caches: attnctl.caches.pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import msgspec

from attnctl.exits import InputError
from attnctl.model.spec import State

# bytes of one element; 8-bit names are cache dtypes
ITEMSIZE = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_per_token_head": 1,
    "int8_per_token_head": 1,
    "uint8": 1,
    "int8": 1,
}


class StateTensor(msgspec.Struct, frozen=True):
    """One tensor of a layer's state: name ("conv" or "ssm"), shape per sequence and rank, dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * itemsize(self.dtype)


def itemsize(dtype: str) -> int:
    """Return the bytes of one element; InputError for a dtype that nobody here knows."""
    size = ITEMSIZE.get(dtype)
    if size is None:
        raise InputError(f"dtype {dtype}: its size is not known; known are {', '.join(ITEMSIZE)}")
    return size


def share(what: str, count: int | None, tp: int) -> int:
    """Return count / tp; InputError where the figure is missing or does not divide."""
    if count is None:
        raise InputError(f"state of this layer: {what} is not given, so its size is unknown")
    if count % tp:
        raise InputError(f"{what} = {count} does not divide by --tp {tp}; take a divisor of it")
    return count // tp


def state_shapes(
    state: State, tp: int = 1, num_spec: int = 0
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return (name, shape) of each state tensor of one rank: conv [W - 1 + S, C], then ssm.

    state: shapes before the split. tp: tensor-parallel ranks. num_spec: speculative tokens S, for
    which the convolution keeps as many more columns (Mamba 1 does not).
    """
    builder = _SHAPES.get(state.type)
    if builder is None:
        raise InputError(f"state type {state.type}: its cache layout is not known")
    return builder(state, tp, num_spec)


_Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def _conv_rows(state: State, num_spec: int) -> int:
    if state.conv_kernel is not None:
        return state.conv_kernel - 1 + num_spec
    if state.conv_state is not None:
        return state.conv_state[-1] + num_spec
    raise InputError(f"state type {state.type}: the width of its convolution is not given")


def channels_of(state: State) -> int | None:
    """The channels of a convolution without heads, before any split."""
    if state.inner is not None:
        return state.inner
    return state.conv_state[0] if state.conv_state else None


def _mamba1(state: State, tp: int, num_spec: int) -> _Shapes:
    inner = share("intermediate size", channels_of(state), tp)
    size = share("state size", state.state_size, 1)
    return ("conv", (_conv_rows(state, 0), inner)), ("ssm", (inner, size))


def _mamba2(state: State, tp: int, num_spec: int) -> _Shapes:
    size = share("state size", state.state_size, 1)
    groups = share("groups", state.n_groups, 1)
    # groups that do not divide are replicated until every rank has one
    groups = groups if groups % tp == 0 else tp
    heads, width = share("heads", state.num_heads, 1), share("head size", state.head_dim, 1)
    inner = heads * width if state.inner is None else state.inner
    channels = share("convolution channels", inner + 2 * groups * size, tp)
    ssm = (share("heads", heads, tp), width, size)
    return ("conv", (_conv_rows(state, num_spec), channels)), ("ssm", ssm)


def _short_conv(state: State, tp: int, num_spec: int) -> _Shapes:
    return (("conv", (_conv_rows(state, num_spec), share("channels", channels_of(state), tp))),)


def _linear(state: State, tp: int, num_spec: int) -> _Shapes:
    heads, width = share("heads", state.num_heads, 1), share("head size", state.head_dim, 1)
    return (("ssm", (heads // tp, width, width)),)


def _gdn(state: State, tp: int, num_spec: int) -> _Shapes:
    k_heads, v_heads = (
        share("key heads", state.num_k_heads, 1),
        share("value heads", state.num_v_heads, 1),
    )
    k_dim, v_dim = (
        share("key width", state.head_k_dim, 1),
        share("value width", state.head_v_dim, 1),
    )
    channels = share("convolution channels", 2 * k_heads * k_dim + v_heads * v_dim, tp)
    ssm = (share("value heads", v_heads, tp), v_dim, k_dim)
    return ("conv", (_conv_rows(state, num_spec), channels)), ("ssm", ssm)


def _kda(state: State, tp: int, num_spec: int) -> _Shapes:
    heads, width = share("heads", state.num_heads, 1), share("head size", state.head_dim, 1)
    k_heads = heads if state.num_k_heads is None else state.num_k_heads
    k_dim = width if state.head_k_dim is None else state.head_k_dim
    channels = share("convolution channels", heads * width + 2 * k_heads * k_dim, tp)
    return ("conv", (_conv_rows(state, num_spec), channels)), (
        "ssm",
        (share("heads", heads, tp), width, width),
    )


_SHAPES = {
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "short_conv": _short_conv,
    "linear": _linear,
    "lightning": _linear,
    "gdn": _gdn,
    "kda": _kda,
}


def state_tensors(
    state: State,
    *,
    dtype: str,
    conv_dtype: str = "auto",
    ssm_dtype: str = "auto",
    tp: int = 1,
    num_spec: int = 0,
) -> tuple[StateTensor, ...]:
    """Return the state tensors of one layer and rank, with their dtypes.

    dtype: the model's. "auto" is the model's dtype for the convolution and the convolution's for
    the recurrence, but float32 for KDA. The one tensor of linear attention takes conv_dtype.
    """
    conv = dtype if conv_dtype == "auto" else conv_dtype
    ssm = conv if ssm_dtype == "auto" else ssm_dtype
    if state.type == "kda":
        ssm = "float32" if ssm_dtype == "auto" else ssm_dtype
    if state.type in ("linear", "lightning"):
        ssm = conv
    shapes = state_shapes(state, tp, num_spec)
    return tuple(
        StateTensor(name, shape, conv if name == "conv" else ssm) for name, shape in shapes
    )


def state_bytes(tensors: Iterable[StateTensor]) -> int:
    """Return the bytes of one sequence's state in one layer."""
    return sum(tensor.size_bytes for tensor in tensors)
