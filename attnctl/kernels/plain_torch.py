"""What a program has set for all of torch and does not mean for what a kernel computes in torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

CPU = torch.device("cpu")


@contextmanager
def plain_torch(device: torch.device) -> Iterator[None]:
    """No gradients, and no autocast, which would take float32 products for bfloat16's.

    device: where it is computed. A function that always computes on the processor is decorated with
    it: @plain_torch(CPU).
    """
    with torch.no_grad():
        kind = device.type
        # of a device that autocast does not know, as meta, it cannot even be asked
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                yield
        else:
            yield
