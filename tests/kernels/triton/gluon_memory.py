"""Memory, barriers and numbers for a Gluon kernel's source that runs as plain Python."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy


class Scalar(int):
    """A whole number with a tensor's methods."""

    def to(self, kind: Any) -> Scalar:
        return self


def _scalar_operation(name: str) -> Any:
    plain = getattr(int, name)

    def operation(self: Scalar, *others: Any) -> Any:
        found = plain(self, *others)
        return found if found is NotImplemented else Scalar(found)

    return operation


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(Scalar, f"__{_name}__", _scalar_operation(f"__{_name}__"))
    setattr(Scalar, f"__r{_name}__", _scalar_operation(f"__r{_name}__"))


class Values(numpy.ndarray):
    """An array in registers."""

    def to(self, kind: Any) -> Values:
        return self


def values(found: Any) -> Values:
    return numpy.asarray(found).view(Values)


class Shared:
    """An array in shared memory."""

    def __init__(self, array: numpy.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def index(self, place: int) -> Shared:
        return Shared(self.array[place])

    def slice(self, first: int, size: int, dim: int) -> Shared:
        assert dim == 0
        return Shared(self.array[first : first + size])

    def permute(self, order: tuple[int, ...]) -> Shared:
        return Shared(self.array.transpose(order))

    def load(self, layout: Any) -> Values:
        return values(self.array.copy())

    def store(self, found: Any) -> None:
        self.array[...] = found


class Barriers:
    """Some barriers: each counts arrivals and the bytes that are still to come."""

    def __init__(self, count: int) -> None:
        self.shape = (count, 1)
        self._all = [SimpleNamespace(phase=0, pending=0, count=0, bytes=0) for _ in range(count)]
        self._change = threading.Condition()

    def index(self, place: int) -> tuple[Any, threading.Condition]:
        return self._all[place], self._change


Barrier = tuple[Any, threading.Condition]


class Memory:
    """A pointer, or an array of them."""

    def __init__(self, flat: numpy.ndarray, at: Any = 0) -> None:
        self.flat, self.at = flat, at
        self.dtype = SimpleNamespace(element_ty=numpy.float32)

    def __add__(self, offset: Any) -> Memory:
        return Memory(self.flat, self.at + numpy.asarray(offset))

    def __getitem__(self, which: Any) -> Memory:
        return Memory(self.flat, numpy.asarray(self.at)[which])


class Box:
    """A tensor descriptor: rows of a matrix by boxes, zeros outside of it."""

    def __init__(self, descriptor: Any) -> None:
        base = descriptor.base
        matrix = base.as_strided(descriptor.shape, descriptor.strides, base.storage_offset())
        self.matrix, self.block_shape = matrix.float().numpy(), descriptor.block_shape

    def copy(self, row: int, column: int, into: numpy.ndarray) -> None:
        found = numpy.zeros(into.shape, into.dtype)
        part = self.matrix[max(row, 0) : row + into.shape[0], column : column + into.shape[1]]
        found[: part.shape[0], : part.shape[1]] = part
        into[...] = found
