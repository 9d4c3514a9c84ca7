"""The child process of a compilation with every knob: lists launches, and compiles single ones.

It answers each line of knob_lines with one. What belongs to the last case is kept: its batch takes
longer to build than all its launches take to be planned.
"""

from __future__ import annotations

import hashlib
import sys
from typing import IO, Any

import msgspec

from attnctl.compiling.knob_lines import (
    Answer,
    Ask,
    Failed,
    Group,
    ListAsk,
    Listed,
    Lists,
    Made,
    MakeAsk,
)
from attnctl.compiling.worker import sentence, serving
from attnctl.smoke.trials import Ready
from attnctl.smoke.worker import say

KEY_DIGITS = 24


def _serve(answers: IO[bytes]) -> None:
    import torch
    import triton

    torch.set_num_threads(1)  # a child a core
    versions = str(torch.__version__), str(triton.__version__)
    say(answers, Ready(ok=True, torch=versions[0], triton=versions[1]))
    opened: Opened | None = None
    compilers: dict[str, Any] = {}
    for line in sys.stdin:
        ask = msgspec.json.decode(line, type=Ask)
        try:
            if opened is None or opened.group != ask.group:
                opened = Opened(ask.group, compilers, versions[1])
            say(answers, opened.answer(ask))
        except Exception as error:  # one case's error is that case's result
            say(answers, _failed(ask, error))


def _failed(ask: Ask, error: Exception) -> Answer:
    if isinstance(ask, MakeAsk):
        return Made(ask.key, "error", detail=sentence(error))
    return Failed(sentence(error))


class Opened:
    """One case of one backend, with its batch. compilers: by target, shared by all cases."""

    def __init__(self, group: Group, compilers: dict[str, Any], triton: str) -> None:
        from attnctl.ops.case import split_case
        from attnctl.ops.catalog import case_of
        from attnctl.ops.meta_calls import built
        from attnctl.runtime import open_backend

        self.group = group
        self._runtime = open_backend(group.backend)
        self._case = case_of(*split_case(group.case))
        self._batch = built(self._case)
        self._compilers = compilers
        self._triton = triton
        self._settings: dict[str, Any] = {}

    def answer(self, ask: Ask) -> Answer:
        """Raises what Triton and the backend raise."""
        if isinstance(ask, ListAsk):
            return Lists(tuple(self._listed(target) for target in ask.targets))
        launch = self._launches(ask.target, ask.setting)[ask.launch]
        return Made(ask.key, launched=self._compiler(ask.target).compile(launch))

    def _listed(self, target: str) -> Listed:
        keys: list[tuple[str, ...]] = []
        refused: dict[int, str] = {}
        settings = self._settings_on(target)
        for place in range(len(settings)):
            try:
                found = self._launches(target, place)
                keys.append(tuple(self._key(target, launch) for launch in found))
            except Exception as error:  # one setting's error is one fault of the case
                refused[place] = sentence(error)
                keys.append(())
        return Listed(target, tuple(map(str, settings)), tuple(keys), refused)

    def _launches(self, target: str, place: int) -> Any:
        from attnctl.compiling.record import case_launches
        from attnctl.tune.settings import tuned

        setting = self._settings_on(target)[place]
        changed = tuned(self._runtime, setting.knobs, setting.kernel)
        return case_launches(changed, self._case, self._compiler(target).machine, self._batch)

    def _settings_on(self, target: str) -> Any:
        from attnctl.compiling.record import settings_for

        if target not in self._settings:
            machine = self._compiler(target).machine
            self._settings[target] = settings_for(self._runtime, self._case, machine)
        return self._settings[target]

    def _compiler(self, target: str) -> Any:
        from attnctl.compiling.compiler import Compiler
        from attnctl.compiling.targets import stand_in

        if target not in self._compilers:
            self._compilers[target] = Compiler(stand_in(target))
        return self._compilers[target]

    def _key(self, target: str, launch: Any) -> str:
        from attnctl.compiling.compiler import source_of
        from attnctl.compiling.targets import gpu_of

        room = gpu_of(self._compiler(target).machine).shared_memory_bytes
        parts = (room, self._triton, launch.kernel.cache_key, source_of(launch).key)
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:KEY_DIGITS]
        return f"{target}:{launch.kernel.__name__}:{digest}"


if __name__ == "__main__":
    sys.exit(serving(_serve))
