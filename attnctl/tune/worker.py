"""The child of a tune: builds batches, judges and times candidates. It alone imports torch.

Reads one request a line (attnctl.tune.exchange), writes one or more answers a line. The answers go
to a private copy of file descriptor 1, so that a kernel that prints cannot garble them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from random import Random
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

import msgspec

from attnctl.tune import exchange
from attnctl.tune.exchange import Candidate, Site, Verdict
from attnctl.tune.settings import Limits, Work, settings_of, tuned
from attnctl.worker import _end_with

if TYPE_CHECKING:
    from attnctl.tune.measure.batch import Batch
    from attnctl.tune.measure.timing import Sampler

SMALL_DECODE = ((1, 63, 64, 300, 1030), (1, 17, 64, 127))
"""Contexts of the batches that candidates are judged on: around a tile, a page and a segment.

In the second none is long enough to be cut: a kernel may be another one then.
"""

SMALL_PREFILL = (129, 97, 5, 700)
SMALL_QUERIES = (129, 33, 1, 64)
MOST_COPIES = 64
DETAIL = 600


def main(arguments: list[str]) -> int:
    """device ("cpu", "cuda:0", "xpu" or "interpret")."""
    (device,) = arguments
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    if device == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    server: Server | None = None
    for line in sys.stdin:
        try:
            if server is None:
                server = Server("cpu" if device == "interpret" else device, _sayer(answers))
            server.serve(msgspec.json.decode(line, type=exchange.Ask))
        except Exception as error:  # one request's error is that request's answer
            server_free(server)
            _sayer(answers)(exchange.Failed(_words(error)))
    return 0


def _sayer(answers: IO[bytes]) -> Callable[[exchange.Answer], None]:
    def say(answer: exchange.Answer) -> None:
        answers.write(msgspec.json.encode(answer) + b"\n")

    return say


def server_free(server: Server | None) -> None:
    if server is not None:
        server.forget()


class Server:
    """Serves requests on one device. The samplers of one point are kept until the next."""

    def __init__(self, device: str, say: Callable[[exchange.Answer], None]) -> None:
        import torch

        self.device = torch.device(device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device.index or 0)
        self.say = say
        self._site: Site | None = None
        self._work: Work | None = None
        self._batches: dict[object, Batch] = {}
        self._small: dict[object, list[Batch]] = {}
        self._samplers: dict[str, Sampler] = {}
        self._random = Random(7)

    @property
    def site(self) -> Site:
        """Found when it is first asked for: a child that only judges does not measure ceilings."""
        if self._site is None:
            from attnctl.tune.measure.site import site_of

            self._site = site_of(self.device)
        return self._site

    def serve(self, ask: exchange.Ask) -> None:
        if isinstance(ask, exchange.AskSite):
            self.say(exchange.Here(self.site))
        elif isinstance(ask, exchange.AskSettings):
            self.say(exchange.Found(self._settings(ask.work, ask.backend)))
        elif isinstance(ask, exchange.AskCheck):
            verdict = self._judged(lambda: self._check(ask.work, ask.candidate))
            self.say(exchange.Judged(ask.candidate.key, verdict))
        else:
            self._time(ask)

    def forget(self) -> None:
        """Gives the memory of a point back."""
        import gc

        import torch

        self._samplers.clear()
        self._batches.clear()
        self._work = None
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _settings(self, work: Work, backend: str) -> tuple[Any, ...]:
        from attnctl.runtime import open_backend

        site = self.site
        limits = Limits(
            arch=site.arch,
            units=site.units,
            shared_memory_bytes=site.shared_memory_bytes,
            threads=site.threads,
        )
        return settings_of(open_backend(backend), work, limits)

    def _judged(self, check: Callable[[], Any]) -> Verdict:
        """What a comparison says, or the error that came instead of one."""
        try:
            found = check()
        except Exception as error:
            self._end_if_broken()
            return Verdict(fault="error", detail=_words(error))
        if found.verdict == "pass":
            return Verdict()
        return Verdict(fault="wrong", detail=f"{found.verdict}: {found.detail}"[:DETAIL])

    def _check(self, work: Work, candidate: Candidate) -> Any:
        from attnctl.tune.measure.batch import build

        runtime = _runtime(candidate)
        order = _order(runtime)
        key = (msgspec.json.encode(_small(work)), candidate.page, order)
        if key not in self._small:
            self._small.clear()
            work = msgspec.structs.replace(work, page=candidate.page)
            self._small[key] = [
                build(work, lengths, self.device, order) for lengths in _small_lengths(work)
            ]
        for batch in self._small[key]:
            found = batch.check(runtime)
            if found.verdict != "pass":
                break
        return found

    def _time(self, ask: exchange.AskTime) -> None:
        if ask.work != self._work:
            self.forget()
            self._small.clear()
            self._work = ask.work
        faults: dict[str, Verdict] = {}
        for candidate in ask.candidates:
            self.say(exchange.At(candidate.key))
            if candidate.key not in self._samplers:
                verdict = self._prepared(ask.work, candidate)
                if verdict.fault is not None:
                    faults[candidate.key] = verdict
        self._sweep(ask, faults)

    def _sweep(self, ask: exchange.AskTime, faults: dict[str, Verdict]) -> None:
        # no word while it samples: a parent that reads would share the processor
        self.say(exchange.At(""))
        live = [one.key for one in ask.candidates if one.key not in faults]
        times: dict[str, list[float]] = {key: [] for key in live}
        for _ in range(ask.rounds):
            # no candidate always follows the same one
            for key in self._random.sample(live, len(live)):
                if key in faults:
                    continue
                try:
                    times[key].append(self._samplers[key].sample_us())
                except Exception as error:
                    self._end_if_broken()
                    faults[key] = Verdict(fault="error", detail=_words(error))
        kept = {key: found for key, found in times.items() if key not in faults}
        self.say(exchange.Times(kept, faults))

    def _prepared(self, work: Work, candidate: Candidate) -> Verdict:
        """Judges a candidate on the point's own batch, and makes its sampler."""
        from attnctl.tune.measure.timing import sampler

        runtime = _runtime(candidate)

        def check() -> Any:
            return self._batch(work, candidate.page, _order(runtime)).check(runtime)

        verdict = self._judged(check)
        if verdict.fault is None:
            try:
                calls = self._batch(work, candidate.page, _order(runtime)).calls(runtime)
                graph = work.phase == "decode"
                self._samplers[candidate.key] = sampler(calls, self.device, graph)
            except Exception as error:
                self._end_if_broken()
                return Verdict(fault="error", detail=_words(error))
        return verdict

    def _end_if_broken(self) -> None:
        """After an illegal access a GPU serves this process no more: the parent starts another."""
        import torch

        if self.device.type != "cuda":
            return
        try:
            torch.cuda.synchronize()
        except Exception as error:
            sys.stderr.write(f"{_words(error)}\n")
            sys.stderr.flush()
            os._exit(1)

    def _batch(self, work: Work, page: int, order: tuple[int, ...] | None) -> Batch:
        from attnctl.tune.measure.batch import Lengths, build

        key = (page, order)
        if key not in self._batches:
            whole = msgspec.structs.replace(work, page=page)
            lengths = Lengths.of(whole, self._copies(whole))
            self._batches[key] = build(whole, lengths, self.device, order)
        return self._batches[key]

    def _copies(self, work: Work) -> int:
        """As many as the last-level cache does not hold, two at least where memory allows."""
        from attnctl.tune.amounts import amounts

        found = amounts(work)
        wanted = max(2, -(-3 * self.site.cache_bytes // max(1, int(found.bytes))))
        room = int(0.25 * self.site.memory_bytes / max(1.0, found.held_bytes))
        return max(1, min(wanted, MOST_COPIES, room))


def _small(work: Work) -> Work:
    """What the small batch depends on: not the point's own lengths."""
    query = work.query if work.phase == "decode" else 0
    return msgspec.structs.replace(work, batch=0, context=0, query=query, page=0)


def _small_lengths(work: Work) -> list[Any]:
    from attnctl.tune.measure.batch import Lengths

    if work.phase != "decode":
        queries = SMALL_QUERIES if work.layer.group.causal else SMALL_PREFILL
        return [Lengths(queries=queries, contexts=SMALL_PREFILL, whole=True)]
    found = []
    for contexts in SMALL_DECODE:
        asked = (work.query,) * len(contexts)
        longer = tuple(max(work.query, context) for context in contexts)
        found.append(Lengths(queries=asked, contexts=longer, whole=True))
    return found


def _runtime(candidate: Candidate) -> Any:
    from attnctl.runtime import open_backend

    return tuned(open_backend(candidate.backend), candidate.knobs, candidate.kernel)


def _order(runtime: Any) -> tuple[int, ...] | None:
    """The order of the cache's dimensions in memory that the backend likes best."""
    asked = getattr(runtime, "cache_stride_order", None)
    return None if asked is None else tuple(asked())


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:DETAIL]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
