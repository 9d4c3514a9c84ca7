"""What the vendor children answer, as types: an answer of another shape is garbled, not a crash."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

import msgspec

from attnctl.probe.host import Host, HostError, child

T = TypeVar("T")
A = TypeVar("A")

# a count or a size; JSON numbers past 63 bits are nonsense from a damaged tape or library
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Field(msgspec.Struct, Generic[T], frozen=True):
    """One fact as a library told it, or why it did not."""

    value: T | None = None
    error: str = ""


class LibraryError(msgspec.Struct, frozen=True):
    """Why a library that is there did not start; name is the vendor's own name for it."""

    name: str
    text: str


class MigInstance(msgspec.Struct, frozen=True):
    """memory: (total, free) bytes."""

    uuid: Field[str] = Field()
    name: Field[str] = Field()
    memory: Field[tuple[Count, Count]] = Field()
    units: Field[Count] = Field()


class NvmlGpu(msgspec.Struct, frozen=True):
    """memory: (total, free) bytes. error: why it could not be opened; nothing else is set then."""

    error: str = ""
    name: Field[str] = Field()
    uuid: Field[str] = Field()
    bus_id: Field[str] = Field()
    pci_id: Field[str] = Field()
    capability: Field[tuple[Count, Count]] = Field()
    cores: Field[Count] = Field()
    memory: Field[tuple[Count, Count]] = Field()
    bus_width_bits: Field[Count] = Field()
    memory_clock_mhz: Field[Count] = Field()
    nvlinks: Field[Count] = Field()
    compute_mode: Field[Count] = Field()
    mig_mode: Field[Count] = Field()
    mig: tuple[MigInstance, ...] = ()


class NvmlAnswer(msgspec.Struct, frozen=True):
    error: LibraryError | None = None
    driver: Field[str] = Field()
    cuda: Field[Count] = Field()
    gpus: tuple[NvmlGpu, ...] = ()


class CudaGpu(msgspec.Struct, frozen=True):
    name: Field[str] = Field()
    uuid: Field[str] = Field()
    bus_id: Field[str] = Field()
    memory_bytes: Field[Count] = Field()
    shared_memory_bytes: Field[Count] = Field()
    shared_memory_optin_bytes: Field[Count] = Field()
    warp_size: Field[Count] = Field()
    units: Field[Count] = Field()
    integrated: Field[Count] = Field()
    memory_clock_khz: Field[Count] = Field()
    bus_width_bits: Field[Count] = Field()
    capability_major: Field[Count] = Field()
    capability_minor: Field[Count] = Field()


class CudaAnswer(msgspec.Struct, frozen=True):
    error: LibraryError | None = None
    version: Field[Count] = Field()
    gpus: tuple[CudaGpu, ...] = ()


class AmdsmiGpu(msgspec.Struct, frozen=True):
    """memory: (total, used) bytes. bandwidth_gbps: 0 where the library does not know."""

    name: Field[str] = Field()
    gfx: Field[str] = Field()
    bus_id: Field[str] = Field()
    units: Field[Count] = Field()
    memory: Field[tuple[Count, Count]] = Field()
    bandwidth_gbps: Field[Count] = Field()


class AmdsmiAnswer(msgspec.Struct, frozen=True):
    error: LibraryError | None = None
    driver: Field[str] = Field()
    gpus: tuple[AmdsmiGpu, ...] = ()


class HipGpu(msgspec.Struct, frozen=True):
    """gfx: the target with its features, "gfx942:sramecc+:xnack-"."""

    name: Field[str] = Field()
    gfx: Field[str] = Field()
    uuid: Field[str] = Field()
    bus_id: Field[str] = Field()
    memory_bytes: Field[Count] = Field()
    shared_memory_bytes: Field[Count] = Field()
    warp_size: Field[Count] = Field()
    multiprocessors: Field[Count] = Field()
    integrated: Field[Count] = Field()


class HipAnswer(msgspec.Struct, frozen=True):
    error: LibraryError | None = None
    version: Field[Count] = Field()
    gpus: tuple[HipGpu, ...] = ()


class ZeGpu(msgspec.Struct, frozen=True):
    """units: Xe cores. tiles: sub-devices. subgroup_sizes: the widths that kernels may have."""

    name: Field[str] = Field()
    uuid: Field[str] = Field()
    bus_id: Field[str] = Field()
    pci_id: Field[str] = Field()
    units: Field[Count] = Field()
    execution_units: Field[Count] = Field()
    subgroup_sizes: Field[tuple[Count, ...]] = Field()
    tiles: Field[Count] = Field()
    integrated: Field[bool] = Field()
    memory_bytes: Field[Count] = Field()
    shared_memory_bytes: Field[Count] = Field()
    fp16: Field[bool] = Field()
    fp64: Field[bool] = Field()


class ZeAnswer(msgspec.Struct, frozen=True):
    error: LibraryError | None = None
    version: Field[str] = Field()
    gpus: tuple[ZeGpu, ...] = ()


Answer = NvmlAnswer | CudaAnswer | AmdsmiAnswer | HipAnswer | ZeAnswer


class Silence(msgspec.Struct, frozen=True):
    """Why a library says nothing of a GPU."""

    reason: str = ""
    timed_out: bool = False


def ask(host: Host, library: str, answer: type[A]) -> A | HostError:
    """The answer of one child, or why there is none: a value here, to be told, not raised."""
    try:
        return msgspec.convert(child(host, library), answer)
    except HostError as error:
        return error
    except msgspec.ValidationError as error:
        return HostError("garbled", f"{library}: {error}")


def works(answer: Answer | HostError) -> bool:
    return not isinstance(answer, HostError) and answer.error is None


def reason(answer: Answer | HostError) -> str:
    """Why a library did not answer, in words; "" where it did."""
    if isinstance(answer, HostError):
        return answer.detail
    return f"{answer.error.name}: {answer.error.text}" if answer.error else ""


def silence(answer: Answer | HostError) -> Silence:
    """Why an answer lacks some GPU."""
    timed_out = isinstance(answer, HostError) and answer.kind == "timeout"
    return Silence(reason(answer) or "not in its list", timed_out)
