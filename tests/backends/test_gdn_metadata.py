"""The split of a gated-delta-rule batch into speculative rows and the others."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.exits import InputError


def split(lengths: list[int], seq_lens: list[int], **extra: Any) -> Any:
    """The split of rows whose slots are 10, 20, ... with a column per draft."""
    import torch

    from attnctl.backends.gdn_attn.metadata import split as of

    columns = 1 + extra.get("num_spec", 0)
    slots = torch.tensor([[10 * (b + 1) + c for c in range(columns)] for b in range(len(lengths))])
    starts = torch.tensor([0, *lengths]).cumsum(0)
    if "num_accepted" in extra:
        extra["num_accepted"] = torch.tensor(extra["num_accepted"])
    return of(starts, torch.tensor(seq_lens), slots, **extra)


def test_without_speculation_decodes_lead_and_the_rest_are_prefills() -> None:
    """Two decodes, a continued prompt and a new one."""
    found = split([1, 1, 5, 7], [9, 4, 20, 7])
    assert (found.num_decodes, found.num_decode_tokens) == (2, 2)
    assert (found.num_prefills, found.num_prefill_tokens) == (2, 12)
    assert found.has_initial_state.tolist() == [True, True, True, False]
    assert found.non_spec_state_indices_tensor.tolist() == [10, 20, 30, 40]
    assert found.spec_sequence_masks is None


def test_a_first_chunk_of_one_token_is_a_prefill_without_a_state() -> None:
    """One token, nothing computed before: not a decode, so the slot's former owner is not read."""
    found = split([1, 1], [9, 1])
    assert (found.num_decodes, found.num_prefills) == (1, 1)
    assert found.has_initial_state.tolist() == [True, False]


def test_trailing_rows_of_length_zero_are_padding() -> None:
    """A decode batch padded for a graph has no prefills."""
    found = split([1, 1, 0, 0], [9, 4, 0, 0])
    assert (found.num_decodes, found.num_prefills) == (2, 0)
    assert found.has_initial_state is None


def test_a_row_that_drafted_nothing_is_still_speculative() -> None:
    """Drafts 2, 0 and 3 make one speculative batch of rows of 3, 1 and 4 tokens."""
    found = split([3, 1, 4], [9, 9, 9], num_drafts=[2, 0, 3], num_accepted=[1, 2, 4], num_spec=3)
    assert (found.num_spec_decodes, found.num_spec_decode_tokens) == (3, 8)
    assert (found.num_decodes, found.num_prefills) == (0, 0)
    assert found.spec_query_start_loc.tolist() == [0, 3, 4, 8]
    assert found.spec_state_indices_tensor.tolist()[2] == [30, 31, 32, 33]
    assert found.spec_token_indx.tolist() == list(range(8))
    assert found.non_spec_token_indx.tolist() == []
    assert found.non_spec_query_start_loc is None
    assert found.uniform_spec_len is None


def test_beside_speculative_rows_decodes_become_prefills() -> None:
    """A verification, a plain decode, a verification and a prompt, told apart by tokens."""
    found = split(
        [2, 1, 2, 3], [9, 9, 9, 3], num_drafts=[1, -1, 1, -1], num_accepted=[1, 1, 2, 1], num_spec=1
    )
    assert (found.num_decodes, found.num_prefills, found.num_prefill_tokens) == (0, 2, 4)
    assert found.spec_sequence_masks.tolist() == [True, False, True, False]
    assert found.spec_token_indx.tolist() == [0, 1, 3, 4]
    assert found.non_spec_token_indx.tolist() == [2, 5, 6, 7]
    assert found.non_spec_query_start_loc.tolist() == [0, 1, 4]
    assert found.non_spec_state_indices_tensor.tolist() == [20, 40]
    assert found.has_initial_state.tolist() == [True, False]
    assert found.num_accepted_tokens.tolist() == [1, 2]
    assert found.uniform_spec_len == 2


def test_no_draft_array_is_the_plain_path() -> None:
    """Speculation configured, but no request is under verification in this batch."""
    for drafts in (None, [-1, -1]):
        found = split([1, 4], [9, 9], num_drafts=drafts, num_spec=3)
        assert (found.num_decodes, found.num_prefills) == (1, 1)
        assert found.spec_sequence_masks is None


def test_graph_padding_is_inert() -> None:
    """Null slots, one accepted token, the last offset repeated; what does not fit is refused."""
    from attnctl.backends.gdn_attn.metadata import padded

    found = split([2, 2], [9, 9], num_drafts=[1, 1], num_accepted=[2, 1], num_spec=1)
    full = padded(found, 4)
    assert full.spec_state_indices_tensor.tolist() == [[10, 11], [20, 21], [-1, -1], [-1, -1]]
    assert full.num_accepted_tokens.tolist() == [2, 1, 1, 1]
    assert full.spec_query_start_loc.tolist() == [0, 2, 4, 4, 4]
    with pytest.raises(InputError, match="2 rows do not fit a graph of 1"):
        padded(found, 1)
    with pytest.raises(InputError, match="speculative rows alone"):
        padded(split([1], [9]), 4)


def test_speculative_rows_without_accepted_counts_are_refused() -> None:
    """The counts say from which column to read."""
    with pytest.raises(InputError, match="num_accepted"):
        split([2], [9], num_drafts=[1], num_spec=1)
