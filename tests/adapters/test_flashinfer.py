"""FLASHINFER against the signatures of FlashInfer's wrappers."""

from __future__ import annotations

import pytest

from attnctl.backends.flashinfer.kernel import FlashInfer
from attnctl.exits import InputError
from attnctl.ops.paged_cases import case
from attnctl.ops.paged_inputs import build
from attnctl.ops.paged_trial import try_case
from tests.adapters import fakes
from tests.adapters.trying import faults


def test_masks_layouts_and_scales_are_right_in_every_phase() -> None:
    """Decode goes through the decode wrapper, all else through the prefill wrapper."""
    package = fakes.flashinfer()
    adapter = FlashInfer(fakes.loader(flashinfer=package))
    features = ("plain", "window", "chunk", "softcap", "sinks", "fused_qkv", "padded", "hnd", "fp8")
    assert faults(adapter, *features) == {}
    assert package.counts.decode >= 1


def test_layers_of_one_batch_share_a_plan() -> None:
    """A plan waits for the device, so it is made once for a batch and mask."""
    package = fakes.flashinfer()
    adapter = FlashInfer(fakes.loader(flashinfer=package))
    batch = build(case(queries="3+1", contexts="20+9"))
    cache = batch.key.new_zeros(adapter.cache_shape(batch.num_blocks, 16, 2, 64))
    tensors = (batch.query_start_loc, batch.seq_lens, batch.block_table, batch.slots)
    for plans in (1, 2):
        metadata = adapter.build_metadata(*tensors, max_query_len=3, max_seq_len=20)
        for _ in range(4):
            adapter.forward(batch.query, cache, metadata, batch.params)
        assert package.counts.planned == plans


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"alibi": True}, "takes no slopes"),
        ({"ranges": True}, "bidirectional ranges"),
        ({"causal": False, "window": 6, "window_right": 5}, "one-sided"),
    ],
)
def test_what_flashinfer_has_not_is_refused(changes: dict[str, object], says: str) -> None:
    """Nothing that has no argument is left out in silence."""
    with pytest.raises(InputError, match=says):
        try_case(FlashInfer(fakes.loader(flashinfer=fakes.flashinfer())), case(**changes))
