"""What a batch that is split as engines split it must have, said before its parts are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnctl.backends.gdn_attn.metadata import GdnMetadata
from attnctl.kernels.batch_checks import INTEGERS, refuse
from attnctl.kernels.state_batch_checks import FLAGS, check_kind
from attnctl.kernels.state_checks import refuse_count

if TYPE_CHECKING:
    from torch import Tensor

COUNTS = (
    "num_prefills", "num_prefill_tokens", "num_decodes", "num_decode_tokens", "num_spec_decodes",
    "num_spec_decode_tokens", "max_prefill_len",
)  # fmt: skip
DIMENSIONS = {
    "has_initial_state": 1,
    "spec_query_start_loc": 1,
    "non_spec_query_start_loc": 1,
    "spec_state_indices_tensor": 2,
    "non_spec_state_indices_tensor": 1,
    "spec_token_indx": 1,
    "non_spec_token_indx": 1,
    "num_accepted_tokens": 1,
}


def check_split(name: str, metadata: GdnMetadata, out: Tensor) -> None:
    """InputError: fields of other kinds, a half without its tensors, or tokens that there are not.

    out: [T, ...]. What the halves' own batches hold is looked at when each is computed.
    """
    for what in COUNTS:
        refuse_count(name, what, getattr(metadata, what))
    for what, dimensions in DIMENSIONS.items():
        tensor = getattr(metadata, what)
        if tensor is None:
            continue
        check_kind(name, what, tensor, FLAGS if what == "has_initial_state" else INTEGERS)
        if tensor.dim() != dimensions or tensor.device != out.device:
            refuse(
                name,
                f"{what} must have {dimensions} dimension{'s'[: dimensions - 1]} and lie on "
                f"{out.device}; it is {list(tensor.shape)} on {tensor.device}",
            )
    for half, counts in (
        (("spec_query_start_loc", "spec_state_indices_tensor"), ("num_spec_decodes",)),
        (
            ("non_spec_query_start_loc", "non_spec_state_indices_tensor"),
            ("num_decodes", "num_prefills"),
        ),
    ):
        missing = [what for what in half if getattr(metadata, what) is None]
        if missing and any(getattr(metadata, count) for count in counts):
            refuse(name, f"{' and '.join(counts)} count rows that {missing[0]} does not hold")
    _check_tokens(name, metadata, out)


def _check_tokens(name: str, metadata: GdnMetadata, out: Tensor) -> None:
    both = metadata.num_spec_decodes and metadata.num_prefills
    tokens = out.shape[0]
    for what in ("spec_token_indx", "non_spec_token_indx"):
        index = getattr(metadata, what)
        if index is None:
            if both:
                refuse(name, f"{what} must say where the half's tokens lie; it is None")
        elif index.is_cpu and index.numel():
            first, last = (int(x) for x in index.aminmax())
            if first < 0 or last >= tokens:
                refuse(
                    name,
                    f"{what} must name tokens 0 to {tokens - 1} of the call; it names {first} to "
                    f"{last}",
                )
