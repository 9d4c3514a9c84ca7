"""What every backend of latent attention takes for granted of a batch, said before kernels run.

Shapes, dtypes and devices are checked everywhere; what the tensors hold only where they lie on the
processor, since reading them would wait for any other device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from attnctl.exits import InputError
from attnctl.kernels.cpu import checks
from attnctl.kernels.cpu.checks import INTEGERS, CheckedMetadata
from attnctl.kernels.latent_checks import refuse
from attnctl.latent_runtime import packed_batch
from attnctl.runtime import Metadata

DIMENSIONS = {"query_start_loc": 1, "seq_lens": 1, "block_table": 2, "slot_mapping": 1}


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Sentences of CPU_ATTN's checks, said by the backend that makes them."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("CPU_ATTN", name, 1)) from None


def check_batch(name: str, metadata: Metadata) -> Metadata:
    """The batch in the kernels' integer types; CheckedMetadata where it lies on the processor.

    InputError: its tensors contradict each other.
    """
    tensors = {field: getattr(metadata, field) for field in DIMENSIONS}
    devices = {getattr(tensor, "device", None) for tensor in tensors.values()}
    if len(devices) > 1:
        said = ", ".join(f"{field} on {x.device}" for field, x in tensors.items())
        refuse(name, f"a batch's tensors must lie on one device; it has {said}")
    if metadata.seq_lens.is_cpu:
        with _named(name):
            return checks.check_batch(metadata)
    for field, dimensions in DIMENSIONS.items():
        tensor = tensors[field]
        if tensor.dtype not in INTEGERS or tensor.dim() != dimensions:
            refuse(
                name,
                f"{field} must be a tensor of integers of {dimensions} "
                f"dimension{'s'[: dimensions - 1]}; it is {list(tensor.shape)} {tensor.dtype}",
            )
    sequences = metadata.seq_lens.shape[0]
    bounds = {"max_query_len": metadata.max_query_len, "max_seq_len": metadata.max_seq_len}
    if metadata.query_start_loc.shape[0] != sequences + 1:
        refuse(
            name,
            f"query_start_loc has {metadata.query_start_loc.shape[0]} entries for {sequences} "
            f"seq_lens; it needs {sequences + 1}",
        )
    if metadata.block_table.shape[0] != sequences:
        refuse(
            name,
            f"block_table has {metadata.block_table.shape[0]} rows for {sequences} seq_lens; it "
            "needs one each",
        )
    return packed_batch(**tensors, **bounds)


def check_places(name: str, metadata: Metadata, cache: Tensor) -> None:
    """InputError: a block table that is too narrow for its contexts, or names no block.

    Only where it lies on the processor; there it is looked through whenever this is called.
    """
    if isinstance(metadata, CheckedMetadata):
        with _named(name):
            checks.check_pages(metadata, cache.shape[0], cache.shape[1])
