"""The child of a tune: builds batches, judges and times candidates. It alone imports torch.

Reads one request a line (attnctl.tune.bench_lines), writes one or more answers, a line each. They
go to a private copy of file descriptor 1, so that a kernel that prints cannot garble them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import IO

import msgspec

from attnctl.processes.lifetime import end_with_parent
from attnctl.tune import bench_lines
from attnctl.tune.exchange import Site, Verdict
from attnctl.tune.settings import Limits, Setting, Work, settings_of


def main(arguments: list[str]) -> int:
    """device ("cpu", "cuda:0", "xpu" or "interpret")."""
    (device,) = arguments
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    end_with_parent()
    if device == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    server: Server | None = None
    for line in sys.stdin:
        try:
            if server is None:
                server = Server("cpu" if device == "interpret" else device, _sayer(answers))
            server.serve(msgspec.json.decode(line, type=bench_lines.Ask))
        except Exception as error:  # one request's error is that request's answer
            if server is not None:
                server.forget()
            words = " ".join(str(error).split())
            _sayer(answers)(bench_lines.Failed(f"{type(error).__name__}: {words}"))
    return 0


def _sayer(answers: IO[bytes]) -> Callable[[bench_lines.Answer], None]:
    def say(answer: bench_lines.Answer) -> None:
        answers.write(msgspec.json.encode(answer) + b"\n")

    return say


class Server:
    """Serves requests on one device."""

    def __init__(self, device: str, say: Callable[[bench_lines.Answer], None]) -> None:
        import torch

        from attnctl.tune.measure.judging import Judging
        from attnctl.tune.measure.turns import Turns

        self.device = torch.device(device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device.index or 0)
        self.say = say
        self._site: Site | None = None
        self._judging = Judging(self.device)
        self.turns = Turns(self.device, self.site)

    def site(self) -> Site:
        """Found when it is first asked for: a child that only judges does not measure ceilings."""
        if self._site is None:
            from attnctl.tune.measure.site import site_of

            self._site = site_of(self.device)
        return self._site

    def serve(self, ask: bench_lines.Ask) -> None:
        if isinstance(ask, bench_lines.AskSite):
            self.say(bench_lines.Here(self.site()))
        elif isinstance(ask, bench_lines.AskSettings):
            self.say(bench_lines.Found(self._settings(ask.work, ask.backend)))
        elif isinstance(ask, bench_lines.AskCheck):
            verdict = self._judging.verdict(ask.work, ask.candidate)
            self.say(bench_lines.Judged(ask.candidate.key, verdict))
        else:
            self._time(ask)

    def forget(self) -> None:
        self.turns.forget()

    def _settings(self, work: Work, backend: str) -> tuple[Setting, ...]:
        from attnctl.runtime import open_backend

        site = self.site()
        limits = Limits(
            arch=site.arch,
            units=site.units,
            shared_memory_bytes=site.shared_memory_bytes,
            threads=site.threads,
        )
        return settings_of(open_backend(backend), work, limits)

    def _time(self, ask: bench_lines.AskTime) -> None:
        if self.turns.begin(ask.work):
            self._judging.forget()
        faults: dict[str, Verdict] = {}
        for candidate in ask.candidates:
            self.say(bench_lines.At(candidate.key))
            verdict = self.turns.prepared(candidate)
            if verdict.fault is not None:
                faults[candidate.key] = verdict
        # no word while it samples: a parent that reads would share the processor
        self.say(bench_lines.At(""))
        live = [one.key for one in ask.candidates if one.key not in faults]
        found = self.turns.times(live, ask.rounds)
        self.say(msgspec.structs.replace(found, faults={**faults, **found.faults}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
