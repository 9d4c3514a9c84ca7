"""The values of a profile document, as plain frozen types: what was timed, on what, with what."""

from typing import Annotated, Literal

import msgspec

from attnctl.profile.days import check_day
from attnctl.profile.keys import Key, Versions, Whole

SCHEMA = "attnctl.profile/1"
SHORTEST_US, LONGEST_US = 1e-6, 1e12
"""Times outside of these are slips: a picosecond, eleven days."""
HEAVIEST = 1e9
"""The largest weight of a point, and one over the smallest."""
LARGEST_BLOCK = 1 << 16
"""Tokens of one block of the cache, far beyond what any backend gains by: a larger one is a slip,
and no memory would hold the blocks of a few sequences."""
Block = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BLOCK)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
"""Of sequences, tokens, heads or columns: a larger one is a slip."""
MaybeCount = Count | None


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One backend at one point: the median of `runs` rounds and their interquartile range.

    Its best setting: kernel names the rival kernel of the backend where it has several, knobs what
    differs from the bundled defaults. default_us: the median with the bundled kernel and defaults
    in the same rounds; default_block: tokens in the cache's blocks there, where a tune had fixed
    them. tried: how many settings were timed. clock: what timed it: "graph", replays of a CUDA
    graph; "queue", calls that the GPU found waiting; "events", calls as a program makes them;
    "process" or "wall" time of a processor. host_us: what the host took to launch a call, where
    that is more than the GPU took to run it.
    """

    backend: str
    median_us: float
    iqr_us: float = 0.0
    runs: Count = 1
    knobs: dict[str, int | str | bool] = {}
    kernel: str = ""
    default_us: float | None = None
    default_block: Block | None = None
    tried: Count = 1
    clock: str = ""
    host_us: float | None = None

    def __post_init__(self) -> None:
        for name in ("median_us", "default_us", "host_us"):
            time = getattr(self, name)
            if time is not None and not SHORTEST_US <= time <= LONGEST_US:
                raise ValueError(f"{name} must be a time that can be measured, found {time}")
        block = self.knobs.get("block_size")
        if block is not None and not (type(block) is int and 1 <= block <= LARGEST_BLOCK):
            raise ValueError(
                f"knobs.block_size must be the tokens of one block of a cache, from 1 to "
                f"{LARGEST_BLOCK}, found {block!r}"
            )
        if not 0 <= self.iqr_us <= LONGEST_US:
            raise ValueError(f"iqr_us must be a spread of times, found {self.iqr_us}")

    @property
    def block_size(self) -> int | None:
        """Tokens in a block of the cache that it asks for; None: what the backend has by itself."""
        asked = self.knobs.get("block_size")
        return asked if type(asked) is int else None

    @property
    def place(self) -> tuple[str, int | None]:
        """What tells it from the other timings of its point."""
        return self.backend, self.block_size


class Rejected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A setting that could not win at one point, and why.

    pruned: a cost model or the device's limits ruled it out before it ran; the rest ran.
    """

    backend: str
    knobs: dict[str, int | str | bool] = {}
    kernel: str = ""
    why: Literal["pruned", "wrong", "error", "crashed", "timeout"]
    detail: str = ""


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workload point: B sequences of S context tokens, `query` new tokens each.

    pick: the backend that the timings give here, as it was decided when the document was written.
    measured: the day, where it is another than the document's. others: timings on sizes of the
    cache's blocks that were raced and not chosen; with the chosen one they share no cache.
    """

    phase: Literal["prefill", "decode"]
    batch: Count
    context: Count
    query: Count = 1
    pick: str = ""
    measured: str = ""
    weight: float = 1.0
    timings: tuple[Timing, ...]
    others: tuple[Timing, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    def __post_init__(self) -> None:
        check_day(self.measured)
        if not 1 / HEAVIEST <= self.weight <= HEAVIEST:
            raise ValueError(f"weight must be a positive number, found {self.weight}")
        names = [timing.backend for timing in self.timings]
        if len(set(names)) < len(names):
            raise ValueError("a backend has two timings at one point")
        sizes = [one.place for one in (*self.timings, *self.others)] if self.others else ()
        if len(set(sizes)) < len(sizes):
            raise ValueError("a backend has two timings on one size of blocks at one point")

    def __str__(self) -> str:
        query = (
            f", q={tokens_text(self.query)}" if self.phase == "prefill" or self.query > 1 else ""
        )
        return f"{self.phase} B={self.batch}, S={tokens_text(self.context)}{query}"

    @property
    def place(self) -> tuple[str, int, int, int]:
        """What tells it from the other points of its entry."""
        return (self.phase, self.batch, self.context, self.query)

    def timing(self, backend: str) -> Timing | None:
        """What was timed of one backend here."""
        for one in self.timings:  # asked at every point of a shape: no generator for it
            if one.backend == backend:
                return one
        return None


class Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The layer shape that was timed; heads and states are per tensor-parallel rank.

    window: tokens that a query may see, or the chunk that it stays inside. topk: tokens that an
    indexer picks. state: the shapes of one sequence's state tensors.
    """

    op: str
    heads: MaybeCount = None
    kv_heads: MaybeCount = None
    head_size: MaybeCount = None
    head_size_v: MaybeCount = None
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    features: tuple[str, ...] = ()
    window: MaybeCount = None
    topk: MaybeCount = None
    state: tuple[tuple[Count, ...], ...] = ()

    def __str__(self) -> str:
        heads = f" {self.heads or '?'}/{self.kv_heads or '?'} heads" if self.heads else ""
        size = f" of {self.head_size}" if self.head_size else ""
        if self.head_size_v not in (None, self.head_size):
            size += f" and {self.head_size_v}"
        cache = "" if self.kv_cache_dtype == "auto" else f", {self.kv_cache_dtype} cache"
        words = [w for w in self.features if self.window is None or not w.endswith("window")]
        words += [f"window {self.window}"] if self.window else []
        words += [f"the best {self.topk}"] if self.topk else []
        tensors = " + ".join("x".join(map(str, sizes)) for sizes in self.state)
        words += [f"state {tensors}"] if tensors else []
        return f"{self.op}{heads}{size}, {self.dtype}{cache}" + "".join(f", {w}" for w in words)

    @property
    def full(self) -> "Shape":
        """The shape with its V width said, which is K's where it is left out."""
        if self.head_size_v is not None:
            return self
        return msgspec.structs.replace(self, head_size_v=self.head_size)


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The timings of one layer shape.

    kernels: backend -> hash of the kernel source timed. order: the backends that were eligible,
    in the default order; ties go to the earlier. gain: the default's time over the picks', its
    weighted geometric mean over the points; ci: its bounds with 95 % confidence.
    """

    shape: Shape
    points: tuple[Point, ...]
    kernels: dict[str, str] = {}
    order: tuple[str, ...] = ()
    gain: float | None = None
    ci: tuple[float, float] | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A whole document as it is written.

    measured: the day, as 2026-11-30. conditions: how it was measured ("l2": "cold",
    "clock_mhz": ...), for the reader; what timed it stands in each timing.
    """

    schema: str = SCHEMA
    name: str
    key: Key
    versions: Versions = Versions()
    measured: str = ""
    memory_bytes: Whole | None = None
    conditions: dict[str, Whole | float | str | bool] = {}
    entries: tuple[Entry, ...] = ()


class Profile(Document, frozen=True, kw_only=True):
    """A document that was read. bad_entries: those that did not read, each in one sentence."""

    bad_entries: tuple[str, ...] = ()


def tokens_text(count: int) -> str:
    """A count of tokens as people write it: 8192 as 8k, 1000 as 1000."""
    return f"{count // 1024}k" if count >= 1024 and count % 1024 == 0 else str(count)
