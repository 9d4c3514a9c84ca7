"""Which GPUs the masks of the environment leave, and under which numbers. Pure functions."""

from __future__ import annotations

from attnctl.probe.visibility.amd import AMD_NAMES, amd_visible
from attnctl.probe.visibility.cuda import CUDA_NAMES, cuda_visible
from attnctl.probe.visibility.intel import INTEL_NAMES, intel_visible
from attnctl.probe.visibility.masks import Entry, Visible, applied, everything

__all__ = [
    "AMD_NAMES",
    "CUDA_NAMES",
    "INTEL_NAMES",
    "Entry",
    "Visible",
    "amd_visible",
    "applied",
    "cuda_visible",
    "everything",
    "intel_visible",
]
