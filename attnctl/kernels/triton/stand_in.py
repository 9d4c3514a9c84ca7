"""The device that tensors without memory stand on: what their kernels are compiled for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from attnctl.kernels.triton.launch import Device

_DEVICE: ContextVar[Device] = ContextVar("device that meta tensors stand on")


def meta_device() -> Device:
    """The facts that launches on the meta device are planned by. LookupError: nobody said."""
    return _DEVICE.get()


@contextmanager
def standing_on(device: Device) -> Iterator[None]:
    """Plans launches on meta tensors for this device inside the block."""
    before = _DEVICE.set(device)
    try:
        yield
    finally:
        _DEVICE.reset(before)
