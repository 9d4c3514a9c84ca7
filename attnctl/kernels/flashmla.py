"""FlashMLA, whichever package brings it: its own, or vLLM's wheel."""

from __future__ import annotations

from typing import Any

from attnctl.exits import AbsentError, InputError, absent
from attnctl.kernels.latent_adapter import Load

MODULES = ("flash_mla", "vllm.third_party.flashmla.flash_mla_interface")


class FlashMlaModule:
    """The module, looked for once: a failed import costs as much each time."""

    def __init__(self, name: str, load: Load) -> None:
        self._name, self._load = name, load
        self._module: Any = None

    def open(self) -> Any:
        """InputError: none can be loaded, with every reason; AbsentError: none is installed."""
        if self._module is None:
            self._module = self._find()
        return self._module

    def _find(self) -> Any:
        reasons, missing = [], True
        for module in MODULES:
            try:
                return self._load(module)
            except (ImportError, OSError) as error:
                reasons.append(f"{module}: {error}")
                missing = missing and absent(error, module)
        kind = AbsentError if missing else InputError
        raise kind(f"{self._name}: FlashMLA cannot be loaded: {'; '.join(reasons)}")
