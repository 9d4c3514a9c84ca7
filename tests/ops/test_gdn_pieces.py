"""GDN_ATTN's runtime on a batch that is split as engines split it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attnctl.backends.gdn_attn.kernel import RUNTIME
from attnctl.backends.gdn_attn.metadata import padded
from attnctl.exits import InputError
from attnctl.ops.gdn import Gdn, gdn
from attnctl.runtime import StateMetadata

SPEC = 3


def inputs_of(tokens: int) -> Gdn:
    draw = torch.Generator().manual_seed(tokens)
    keys = [torch.randn(tokens, 2, 16, generator=draw) for _ in range(2)]
    return Gdn(
        q=keys[0],
        k=keys[1],
        v=torch.randn(tokens, 4, 16, generator=draw),
        g=-torch.rand(tokens, 4, generator=draw),
        beta=torch.rand(tokens, 4, generator=draw),
        scale=0.25,
        l2norm=True,
    )


def compared(
    lengths: list[int],
    known: list[bool],
    drafts: list[int] | None = None,
    accepted: list[int] | None = None,
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Outputs and pool by the split batch, and by the specification on the whole one."""
    rows, columns = len(lengths), 1 + (SPEC if drafts else 0)
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    slots = torch.randperm(rows * columns, generator=torch.Generator().manual_seed(3))
    slots = slots.reshape(rows, columns).int()
    seq_lens = torch.tensor([n + 9 * one for n, one in zip(lengths, known, strict=True)])
    inputs = inputs_of(sum(lengths))
    pool = torch.randn(rows * columns, 4, 16, 16, generator=torch.Generator().manual_seed(4))
    extra: dict[str, Any] = {}
    marks = None
    if drafts and accepted:
        marks = torch.tensor([one >= 0 for one in drafts])
        extra = {"num_accepted": torch.tensor(accepted).int(), "num_spec": SPEC}
    found = pool.clone()
    batch = RUNTIME.build_split(starts, seq_lens, slots, num_drafts=drafts, **extra)
    out = RUNTIME.forward(inputs, found, batch)
    exact = pool.double()
    metadata = StateMetadata(
        query_start_loc=starts,
        state_indices=slots,
        has_initial_state=torch.tensor(known),
        max_query_len=max(lengths),
        speculative=marks,
        **extra,
    )
    return (out, found), (gdn(inputs, exact, metadata), exact)


@pytest.mark.parametrize(
    ("lengths", "known"),
    [
        ([1, 1, 1], [True, True, True]),
        ([1, 1, 5, 70], [True, True, True, False]),
        ([1, 6], [False, True]),
        ([1, 1, 0, 0], [True, True, False, False]),
    ],
)
def test_decodes_and_prefills_are_as_specified(lengths: list[int], known: list[bool]) -> None:
    """Leading decodes are a call of their own; a first chunk of one token is none of them."""
    (out, pool), (exact, states) = compared(lengths, known)
    torch.testing.assert_close(out.double(), exact, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(pool.double(), states, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("lengths", "drafts", "accepted"),
    [
        ([3, 1, 4], [2, 0, 3], [1, 2, 4]),
        ([1, 3, 40, 2], [-1, 2, -1, 1], [1, 3, 1, 2]),
    ],
)
def test_speculative_rows_are_as_specified_alone_and_mixed(
    lengths: list[int], drafts: list[int], accepted: list[int]
) -> None:
    """Tokens of both halves come from and go back to where they lie in the batch."""
    (out, pool), (exact, states) = compared(lengths, [True] * len(lengths), drafts, accepted)
    torch.testing.assert_close(out.double(), exact, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(pool.double(), states, atol=1e-5, rtol=1e-4)


def test_rows_that_pad_a_graph_change_nothing() -> None:
    """Two inert rows at the end: the same outputs, the same pool."""
    inputs, starts = inputs_of(4), torch.tensor([0, 3, 4]).int()
    slots = torch.arange(8).reshape(2, 4).int()
    accepted = torch.tensor([2, 1]).int()
    batch = RUNTIME.build_split(
        starts, torch.tensor([9, 9]), slots, num_drafts=[2, 0], num_accepted=accepted, num_spec=3
    )
    first = torch.randn(8, 4, 16, 16, generator=torch.Generator().manual_seed(5))
    second = first.clone()
    out = RUNTIME.forward(inputs, first, batch)
    assert torch.equal(out, RUNTIME.forward(inputs, second, padded(batch, 4)))
    assert torch.equal(first, second)


def test_drafts_without_accepted_counts_are_refused() -> None:
    """What stayed of the last step decides which state is read."""
    with pytest.raises(InputError, match="num_accepted"):
        RUNTIME.build_split(
            torch.tensor([0, 2]),
            torch.tensor([9]),
            torch.zeros(1, 3, dtype=torch.int32),
            num_drafts=[1],
            num_spec=2,
        )
