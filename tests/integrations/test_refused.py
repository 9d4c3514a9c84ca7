"""What transformers may ask for and no kernel computes: one sentence each, never other numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers.masking_utils import (
    and_masks,
    blockwise_overlay,
    causal_mask_function,
    sliding_window_causal_mask_function,
)

from attnctl.exits import InputError
from attnctl.integrations.masks import attention_mask
from attnctl.integrations.transformers import attach, attend
from tests.integrations.test_transformers import llama, qwen3_next


def test_masks_that_a_layer_states_are_computed_and_others_refused() -> None:
    """Causal and windowed ones pass; blocks of tokens that see each other do not."""
    sizes: dict[str, Any] = {"batch_size": 1, "q_length": 4, "kv_length": 4}
    for plain in (causal_mask_function, sliding_window_causal_mask_function(3)):
        assert attention_mask(**sizes, mask_function=plain) is None
    blocks = and_masks(causal_mask_function, blockwise_overlay(torch.zeros(1, 4)))
    with pytest.raises(InputError, match="blockwise_overlay"):
        attention_mask(**sizes, mask_function=blocks)


def test_a_preallocated_cache_is_seen_up_to_the_last_token() -> None:
    """Sixteen places of which five are filled."""
    mask = attention_mask(1, 1, 16, q_offset=4, mask_function=causal_mask_function)
    assert mask is not None
    assert mask.tolist() == [[True] * 5]


def test_training_and_packed_sequences_are_refused() -> None:
    """One sentence each, before anything is computed."""
    model = llama()
    module = model.model.layers[0].self_attn
    tensors = torch.randn(1, 4, 3, 32), torch.randn(1, 2, 3, 32), torch.randn(1, 2, 3, 32), None
    with pytest.raises(InputError, match="dropout"):
        attend(module, *tensors, dropout=0.1)
    with pytest.raises(InputError, match="pad them"):
        attend(module, *tensors, cu_seq_lens_q=torch.tensor([0, 3]))
    with pytest.raises(InputError, match=r"of 4 dimensions; pass one of \[B, S\]"):
        attend(module, *tensors[:3], torch.zeros(1, 1, 3, 3))
    with pytest.raises(InputError, match="no layer_idx"):
        attend(torch.nn.Identity(), *tensors)


@pytest.mark.parametrize("make", [llama, qwen3_next])
def test_a_gradient_is_an_error_and_never_nothing(make: Callable[[], Any]) -> None:
    """The kernels have no backward: weights before them would be trained as if they had no part."""
    model = make()
    model.set_attn_implementation("attnctl")
    attach(model)
    logits = model(torch.tensor([[1, 2, 3]])).logits
    with pytest.raises(InputError, match="its kernels compute no gradients"):
        logits.sum().backward()
    model.requires_grad_(False)
    assert not model(torch.tensor([[1, 2, 3]])).logits.requires_grad
