"""FlashMLA, whichever package brings it: its own, or vLLM's wheel."""

from __future__ import annotations

from typing import Any

from attnctl.kernels.libraries import Load, loaded

MODULES = ("flash_mla", "vllm.third_party.flashmla.flash_mla_interface")


class FlashMlaModule:
    """The module, looked for once: a failed import costs as much each time."""

    def __init__(self, name: str, load: Load) -> None:
        self._name, self._load = name, load
        self._module: Any = None

    def open(self) -> Any:
        """InputError: none can be loaded, with every reason; AbsentError: none is installed."""
        if self._module is None:
            self._module = loaded(self._name, "FlashMLA", self._load, *MODULES)
        return self._module
