"""What backends of paged and of latent attention take for granted of a batch, and its runtime half.

Shapes, dtypes and devices are checked everywhere; what the tensors hold only where they lie on the
processor, since reading them would wait for any other device.
"""

from __future__ import annotations

from torch import Tensor

from attnctl.arguments import shown
from attnctl.kernels import batch_checks
from attnctl.kernels.batch_checks import (
    DIMENSIONS,
    INTEGERS,
    CheckedMetadata,
    FittingMetadata,
    check_bounds,
    check_sequences,
    check_tensors,
    refuse,
)
from attnctl.latent_runtime import packed_batch
from attnctl.runtime import Metadata
from attnctl.runtime_copies import MadeAnew


def check_batch(name: str, metadata: Metadata) -> Metadata:
    """The batch in the kernels' integer types; CheckedMetadata where it lies on the processor,
    FittingMetadata elsewhere.

    InputError: its tensors contradict each other.
    """
    tensors = _tensors(name, metadata)
    if metadata.seq_lens.is_cpu:
        return batch_checks.check_batch(name, metadata)
    _check_fields(name, metadata, tensors)
    bounds = {"max_query_len": metadata.max_query_len, "max_seq_len": metadata.max_seq_len}
    packed = packed_batch(**tensors, **bounds)
    return FittingMetadata(**{field: getattr(packed, field) for field in packed.__struct_fields__})


def checked_batch(name: str, metadata: Metadata) -> Metadata:
    """The batch of a call: looked through here where build_metadata has not.

    InputError: as of check_batch. On another device than the processor a batch of the program's own
    is taken as it is then, so that what is kept for a batch is found by it; but where its tensors
    have gaps, which kernels do not step over.
    """
    if isinstance(metadata, CheckedMetadata):
        return metadata
    if isinstance(metadata, FittingMetadata) and not metadata.seq_lens.is_cpu:
        return metadata
    tensors = _tensors(name, metadata)
    if metadata.seq_lens.is_cpu:
        return batch_checks.check_batch(name, metadata)
    _check_fields(name, metadata, tensors)
    dense = all(tensor.is_contiguous() for tensor in tensors.values())
    return metadata if dense else check_batch(name, metadata)


def rows_of_unread(name: str, metadata: Metadata) -> int:
    """The query tokens of a batch whose contexts a call does not read; 0 where it was checked, or
    lies elsewhere than on the processor.

    InputError: its tensors do not fit together. A token may see no context at all.
    """
    if isinstance(metadata, FittingMetadata):
        return 0
    _check_fields(name, metadata, _tensors(name, metadata))
    if not metadata.seq_lens.is_cpu:
        return 0
    starts: list[int] = metadata.query_start_loc.tolist()
    batch_checks.check_starts(name, starts)
    return starts[-1]


def _tensors(name: str, metadata: Metadata) -> dict[str, Tensor]:
    """The tensors of a batch, all on one device. InputError: something else stands there."""
    if not isinstance(metadata, Metadata):
        refuse(name, f"metadata must be what build_metadata returns; it is {shown(metadata)}")
    tensors = {field: getattr(metadata, field) for field in DIMENSIONS}
    for field, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            refuse(name, f"{field} must be a tensor of integers; it is {type(tensor)}")
    devices = {tensor.device for tensor in tensors.values()}
    if len(devices) > 1:
        said = ", ".join(f"{field} on {x.device}" for field, x in tensors.items())
        refuse(name, f"a batch's tensors must lie on one device; it has {said}")
    check_tensors(name, **tensors)
    return tensors


def _check_fields(name: str, metadata: Metadata, tensors: dict[str, Tensor]) -> None:
    """InputError: tensors of a device that is not asked what they hold do not fit together."""
    for field, dimensions in DIMENSIONS.items():
        tensor = tensors[field]
        if tensor.dtype not in INTEGERS or tensor.dim() != dimensions:
            refuse(
                name,
                f"{field} must be a tensor of integers of {dimensions} "
                f"dimension{'s'[: dimensions - 1]}; it is {list(tensor.shape)} {tensor.dtype}",
            )
    check_bounds(name, metadata)
    check_sequences(name, metadata)


def check_places(name: str, metadata: Metadata, cache: Tensor) -> None:
    """InputError: a block table that is too narrow for its contexts, or names no block.

    Only where it lies on the processor; there it is looked through whenever this is called.
    """
    if isinstance(metadata, CheckedMetadata):
        batch_checks.check_pages(name, metadata, cache.shape[0], cache.shape[1])


class CheckedBatches(MadeAnew):
    """The half of a runtime that deals with a batch before its kernels read it."""

    name = ""
    _placed: tuple[Metadata, int, int] | None = None

    def get_name(self) -> str:
        return self.name

    def is_ssm(self) -> bool:
        return False

    def build_metadata(
        self,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        slot_mapping: Tensor,
        *,
        max_query_len: int,
        max_seq_len: int,
    ) -> Metadata:
        """The batch, in int32 (slots int64), dense: on a GPU what is so already is not copied.

        On the processor its contents are checked, once: do not change its tensors while it is in
        use. InputError: its tensors contradict each other, as far as that shows without waiting.
        """
        return self._check_batch(
            Metadata(
                query_start_loc=query_start_loc,
                seq_lens=seq_lens,
                block_table=block_table,
                slot_mapping=slot_mapping,
                max_query_len=max_query_len,
                max_seq_len=max_seq_len,
            )
        )

    def _check_batch(self, metadata: Metadata) -> Metadata:
        return check_batch(self.name, metadata)

    def _checked(self, metadata: Metadata) -> Metadata:
        return checked_batch(self.name, metadata)

    def _check_places(self, metadata: Metadata, cache: Tensor) -> None:
        """The layers of a model share a batch: its block table is looked through once."""
        seen = (metadata, *cache.shape[:2])
        last = self._placed
        if last is None or last[0] is not metadata or last[1:] != seen[1:]:
            check_places(self.name, metadata, cache)
            self._placed = seen
