"""What a batch that is split as engines split it must have, said before its parts are computed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING

from attnctl.arguments import shown
from attnctl.backends.gdn_attn.metadata import GdnMetadata
from attnctl.kernels.batch_checks import INTEGERS, refuse
from attnctl.kernels.states.batch_checks import FLAGS, check_kind, check_rows
from attnctl.kernels.states.checks import refuse_count

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


def check_batch_to_split(
    name: str,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    state_indices: Tensor,
    num_drafts: Sequence[int] | None,
    num_accepted: Tensor | None,
    num_spec: int,
) -> None:
    """InputError: a batch that an engine lays out on the host contradicts itself."""
    given = {"query_start_loc": query_start_loc, "seq_lens": seq_lens}
    given |= {"state_indices": state_indices}
    given |= {} if num_accepted is None else {"num_accepted": num_accepted}
    for what, tensor in given.items():
        check_kind(name, what, tensor, INTEGERS)
        dimensions = 2 if what == "state_indices" else 1
        if tensor.dim() != dimensions or not tensor.is_cpu:
            refuse(
                name,
                f"{what} must have {dimensions} dimension{'s'[: dimensions - 1]} and lie on the "
                f"cpu; it is {list(tensor.shape)} on {tensor.device}",
            )
    refuse_count(name, "num_spec", num_spec)
    starts = query_start_loc.tolist()
    if not starts or starts[0] < 0 or any(b < a for a, b in pairwise(starts)):
        refuse(name, "query_start_loc must rise from 0, with one entry more than sequences")
    rows = len(starts) - 1
    for what in (*given.keys() - {"query_start_loc"},):
        check_rows(name, what, given[what], rows)
    if state_indices.shape[1] <= num_spec:
        refuse(
            name,
            f"{num_spec} drafts need {1 + num_spec} columns of state_indices; "
            f"it has {state_indices.shape[1]}",
        )
    drafts = _drafts(name, num_drafts, rows)
    for b, length in enumerate(seq_lens.tolist()):
        # a verification follows a step that has left a state
        least = starts[b + 1] - starts[b] + (num_spec > 0 and drafts[b] >= 0)
        if length < least and starts[b + 1] > starts[b]:
            refuse(
                name,
                f"seq_lens counts the context and the batch's own tokens; seq_lens[{b}] is "
                f"{length}, which must be {least} or more",
            )


def _drafts(name: str, given: Sequence[int] | None, rows: int) -> Sequence[int]:
    """Drafts of each row, -1 where it is no verification. InputError: other than a number each."""
    if given is None:
        return [-1] * rows
    counts = isinstance(given, Sequence) and all(
        isinstance(x, Integral) and not isinstance(x, bool) for x in given
    )
    if not counts or len(given) != rows:
        refuse(name, f"num_drafts must be {rows} integers, one a sequence; it is {shown(given)}")
    return given
