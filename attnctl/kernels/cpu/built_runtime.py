"""What backends on a processor share: kernels that are built, or found built, at the first call."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from attnctl.findings import Finding
    from attnctl.probe.host import Host

K = TypeVar("K")


class Built(ABC, Generic[K]):
    """A runtime's kernels. _host: where a compiler is looked for; None for this machine."""

    name = ""
    _host: Host | None = None
    _kernels: K | None = None
    _finding: Finding | None = None

    @abstractmethod
    def _build(self, host: Host) -> tuple[K, Finding]:
        """The kernels, in C++ or torch, and the finding that says which and why."""

    def finding(self) -> Finding:
        """What computes: the compiler and flags of the C++ kernels, or why it is torch instead."""
        self._open()
        assert self._finding is not None
        return self._finding

    def _open(self) -> K:
        if self._kernels is None:
            from attnctl.probe.realhost import RealHost

            self._kernels, self._finding = self._build(self._host or RealHost())
            if not self._finding.met:
                warnings.warn(
                    f"{self.name} computes in plain torch, slowly: {self._finding.found}. "
                    f"Try: {self._finding.fix}",
                    stacklevel=3,
                )
        return self._kernels
