"""Calls of the library with one argument changed at a time, and what may come of each.

A call is its arguments by name, values with fields among them, and a function that makes it anew
and gives the tensors that came of it. Each argument and each field becomes, one at a time, what a
program may hand over by mistake (nothing, a list, another dtype, rank, device or view) or by right
(other strides, wider integers). Either it is refused in one sentence, or the result is that of
the operation's specification for those very arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from attnctl.exits import InputError

Arguments = Mapping[str, Any]
Results = tuple[Tensor, ...]


class Call(NamedTuple):
    """run: the library's results, of arguments that it may write into. exact: the specification's.

    arguments: new ones, the same each time. fields: what is changed, "a" or "a.b".
    """

    arguments: Callable[[], dict[str, Any]]
    run: Callable[[dict[str, Any]], Results]
    exact: Callable[[dict[str, Any]], Results]

    def fields(self) -> tuple[str, ...]:
        found: list[str] = []
        for name, value in self.arguments().items():
            found.append(name)
            if isinstance(value, msgspec.Struct):
                found += (f"{name}.{field}" for field in value.__struct_fields__)
        return tuple(found)


def field_of(arguments: Arguments, field: str) -> Any:
    name, _, inner = field.partition(".")
    return getattr(arguments[name], inner) if inner else arguments[name]


def changed(arguments: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    name, _, inner = field.partition(".")
    if inner:
        value = msgspec.structs.replace(arguments[name], **{inner: value})
    return {**arguments, name: value}


def variants(value: Any) -> Iterator[tuple[str, Any]]:
    """What may stand in an argument's place, with a name for each."""
    yield "None", None
    yield "a word", "word"
    yield "a list", value.tolist() if isinstance(value, Tensor) else [value]
    if isinstance(value, Tensor):
        yield "a number", 1.5
        yield "numpy's", value.detach().numpy()
        yield from _views(value)
        yield from _dtypes(value)
        if value.dtype in (torch.int32, torch.int64):
            yield from _integers(value)
    elif isinstance(value, bool):
        yield from (("0", 0), ("2.5", 2.5), ("a tensor", torch.tensor(value)))
    elif isinstance(value, int):
        yield from ((repr(x), x) for x in (-1, 0, 1, 2.5, True, 1 << 20, 1 << 40, float("nan")))
        yield "a tensor", torch.tensor(value)
    elif isinstance(value, float):
        yield from ((repr(x), x) for x in (1, float("nan"), float("inf"), 1j, 10**400, -1.0))
        yield "a tensor", torch.tensor(value)
    elif value is None:
        yield from (("a number", 1.5), ("a tensor", torch.ones(2)), ("a deep tensor", _DEEP))
    else:
        yield "a number", 7


_DEEP = torch.ones(1, 1, 1, 1)


def _views(value: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield "on meta", value.to("meta")
    yield "sparse", value.to_sparse()
    yield "of no dimension", value.new_ones(())
    yield "one dimension more", value[None]
    yield "one dimension more behind", value[..., None]
    if value.dim():
        yield "a row less", value[:-1].clone()
        yield "a row more", torch.cat([value, value[-1:]])
        yield "empty", value[:0].clone()
        yield "of one row, expanded", value[:1].clone().expand_as(value)
        yield "turned", value.flip(0)
        spread = value.new_zeros(*value.shape[:-1], 2 * value.shape[-1])
        spread[..., ::2] = value
        yield "every other element", spread[..., ::2]
    if value.dim() > 1:
        yield "flat", value.flatten()
        yield "a column less", value[..., :-1].clone()
        yield "a column more", torch.cat([value, value[..., -1:]], -1)
        yield "of one column, expanded", value[..., :1].clone().expand_as(value)
        yield "other strides", value.transpose(0, 1).contiguous().transpose(0, 1)
    if value.dtype in (torch.float32, torch.float64):
        yield "negated view", torch.complex(torch.zeros_like(value), -value).conj().imag
        yield "with a gradient", value.clone().requires_grad_()


def _dtypes(value: Tensor) -> Iterator[tuple[str, Tensor]]:
    dtypes = (
        torch.float64, torch.float32, torch.float16, torch.float8_e4m3fn, torch.complex64,
        torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool,
    )  # fmt: skip
    for dtype in dtypes:
        if dtype is not value.dtype:
            yield f"of {dtype}", value.to(dtype)


def _integers(value: Tensor) -> Iterator[tuple[str, Tensor]]:
    for number in (-5, -1, 0, 1, 1000, (1 << 31) - 1):
        yield f"full of {number}", torch.full_like(value, number)
    for number in (-(1 << 40), (1 << 32) + 1, 1 << 40, (1 << 63) - 1):
        yield f"full of {number}", torch.full_like(value, number, dtype=torch.int64)
    yield "all the first", value.flatten()[:1].repeat(value.numel()).view(value.shape)
    for at in range(min(value.numel(), 6)):
        for number in (-7, 999):
            one = value.clone()
            one.view(-1)[at] = number
            yield f"with {number} at {at}", one


def fault(call: Call, field: str, value: Any) -> str:
    """What is wrong with the answer to a call with one field changed, "" for nothing."""
    arguments = call.arguments()
    pristine = {name: _copy(x) for name, x in arguments.items()}
    kept = _copy(value)
    try:
        found = call.run(changed(arguments, field, value))
    except InputError as refusal:
        return _badly_said(str(refusal))
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    try:
        wanted = call.exact(changed(pristine, field, kept))
    except Exception as error:
        return f"is computed, but is none: {type(error).__name__}: {str(error)[:90]}"
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one.grad_fn is not None:
            return f"result {number} wants a gradient"
        if one.shape != other.shape:
            return f"result {number} is {list(one.shape)} and should be {list(other.shape)}"
        one, other = (_plain(x) for x in (one, other))
        if not torch.allclose(one, other, atol=2e-2, rtol=2e-2):
            return f"result {number} is wrong by {(one - other).abs().max():.3g}"
    return ""


def _copy(value: Any) -> Any:
    """A value with plain tensors of its own, of the same numbers."""
    if isinstance(value, Tensor):
        value = value.detach().resolve_neg()
        return (value.to_dense() if value.is_sparse else value).clone()
    if isinstance(value, msgspec.Struct):
        fields = {name: _copy(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    return value


def _plain(result: Tensor) -> Tensor:
    """In float64, with numbers that float32 has, and one for NaN."""
    return result.detach().double().nan_to_num(-77.0).clamp(-1e30, 1e30)


def _badly_said(sentence: str) -> str:
    if "\n" in sentence or not 10 < len(sentence) < 400 or "object at 0x" in sentence:
        return f"is refused unclearly: {sentence!r}"
    return ""
