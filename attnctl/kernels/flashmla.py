"""FlashMLA, whichever package brings it: its own, or vLLM's wheel."""

from __future__ import annotations

from typing import Any

from attnctl.exits import InputError
from attnctl.kernels.latent_adapter import Load

MODULES = ("flash_mla", "vllm.third_party.flashmla.flash_mla_interface")


def open_flashmla(name: str, load: Load) -> Any:
    """The module. InputError: none can be loaded, with every reason."""
    reasons = []
    for module in MODULES:
        try:
            return load(module)
        except (ImportError, OSError) as error:
            reasons.append(f"{module}: {error}")
    raise InputError(f"{name}: FlashMLA cannot be loaded: {'; '.join(reasons)}")
