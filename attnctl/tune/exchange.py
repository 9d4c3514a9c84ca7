"""What is timed and judged, and where: the values that a tune and its child share. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from attnctl.tune.settings import Knobs, Setting, Work

Fault = Literal["wrong", "error", "crashed", "timeout"]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A backend with a setting. page: tokens in a block of the cache that it is given."""

    backend: str
    knobs: Knobs = {}
    kernel: str = ""
    page: int = 0

    @property
    def key(self) -> str:
        """The same text for the same candidate, in this run and the next."""
        knobs = ",".join(f"{name}={value}" for name, value in sorted(self.knobs.items()))
        return f"{self.backend}/{self.kernel}/{self.page}/{knobs}"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What the child found: versions, the device's limits, its measured ceilings.

    read_gbps: 10^9 bytes a second read from memory. matrix_gflops: 10^9 operations a second of a
    large product. memory_bytes: free. cache_bytes: the last-level cache, which copies must exceed.
    """

    torch: str
    triton: str | None = None
    arch: str = ""
    units: int = 1
    shared_memory_bytes: int = 0
    threads: int = 1
    memory_bytes: int = 0
    cache_bytes: int = 1 << 25
    read_gbps: float = 0.0
    matrix_gflops: float = 0.0
    conditions: dict[str, int | float | str | bool] = {}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a candidate may be timed. fault: None where its outputs are right.

    seconds: what it took to tell, compiling included; for the journal's reader.
    """

    fault: Fault | None = None
    detail: str = ""
    seconds: float = 0.0


class Times(msgspec.Struct, frozen=True, tag="times"):
    """times_us: by key, a time in microseconds for each round. faults: what did not get as far.

    clocks: by key, what timed it, as a profile's Timing says. host_us: what the host took to launch
    a call of prefill, which is not in the time.
    """

    times_us: dict[str, list[float]]
    faults: dict[str, Verdict] = {}
    clocks: dict[str, str] = {}
    host_us: dict[str, float] = {}


class Bench(Protocol):
    """Where candidates run. The search knows nothing else of the device."""

    def site(self) -> Site: ...

    def settings(self, work: Work, backend: str) -> Sequence[Setting] | Verdict:
        """What may be tuned; a verdict where the backend cannot say."""

    def check(
        self,
        work: Work,
        candidates: Sequence[Candidate],
        until: float | None = None,
        always: int = 0,
    ) -> Iterator[tuple[Candidate, Verdict]]:
        """Each candidate's outputs on small batches, in any order.

        until: on the monotonic clock; those that were not begun by then are not given, but for the
        first `always` ones.
        """

    def time(self, work: Work, candidates: Sequence[Candidate], rounds: int) -> Times:
        """A time of each candidate for each interleaved round, and faults."""
