"""What plans go by of the device that a tensor lies on."""

from __future__ import annotations

from functools import lru_cache

import torch

from attnctl.kernels.triton.launch import Device
from attnctl.kernels.triton.stand_in import meta_device


def device_of(device: torch.device) -> Device:
    """The facts of a tensor's device.

    On the CPU (Triton's interpreter) those of a small GPU; without memory those of the target.
    """
    if device.type == "cpu":
        return Device("interpreter", 4, 65536)
    if device.type == "meta":
        return meta_device()
    index = torch.cuda.current_device() if device.index is None else device.index
    return _gpu(index)


@lru_cache(maxsize=64)
def _gpu(index: int) -> Device:
    facts = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        return Device(
            facts.gcnArchName.partition(":")[0],
            facts.multi_processor_count,
            facts.shared_memory_per_block,
        )
    return Device(
        f"sm_{facts.major}{facts.minor}",
        facts.multi_processor_count,
        facts.shared_memory_per_block_optin,
    )
