"""Small models from transformers' configuration classes: attnctl's logits against eager's."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

import attnctl
from attnctl.integrations.packing import packed_view
from attnctl.integrations.transformers import PackedCache, attach, plan_of, use_plan
from attnctl.layer import Options
from attnctl.ops.compare import compare
from attnctl.profile.document import key_of, shape_of
from attnctl.profile.values import Entry, Point, Profile, Timing

LENGTH, STEPS = 37, 6
SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
DELTA: dict[str, Any] = {
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "layer_types": ["linear_attention", "full_attention"],
    # experts have no double precision
    "mlp_only_layers": [0, 1],
}
Cache = Callable[[Any], Any]
# the argument was renamed in transformers 5.24
KEPT = "cache" if "cache" in signature(LlamaForCausalLM.forward).parameters else "past_key_values"


def llama(**changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, **changes)).eval()


def qwen3_next() -> Qwen3NextForCausalLM:
    torch.manual_seed(0)
    return Qwen3NextForCausalLM(Qwen3NextConfig(**SIZES, **DELTA)).eval()


@torch.no_grad()
def decoded(model: Any, by: str, cache: Cache | None = None, mask: Tensor | None = None) -> Tensor:
    """The logits of a prompt and of greedy steps behind it, by one attention implementation."""
    model.set_attn_implementation(by)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 128, (2, LENGTH), generator=generator)
    kept = cache(model.config) if cache else None
    found = []
    for _ in range(STEPS):
        step = model(tokens, use_cache=True, attention_mask=mask, **{KEPT: kept})
        found.append(step.logits)
        tokens, kept = step.logits[:, -1:].argmax(-1), step[KEPT]
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones(2, 1)], dim=1)
    return torch.cat(found, dim=1)


def exact(model: Any, mask: Tensor | None = None) -> Tensor:
    """Double precision, from which both are judged; eager's rows of padding are NaN there."""
    return decoded(model.double(), "sdpa", mask=mask)


def assert_within_budget(
    model: Any, cache: Cache | None = None, mask: Tensor | None = None
) -> None:
    """No worse than twice eager's own error, as smoke asks of every kernel."""
    eager = decoded(model, "eager", mask=mask)
    ours = decoded(model, "attnctl", cache, mask)
    truth = exact(model, mask)
    model.float()
    counts = slice(None) if mask is None else torch.nn.functional.pad(mask, (0, STEPS - 1), value=1)
    counts = counts if mask is None else counts.bool()
    found = compare(ours[counts], eager[counts], truth[counts])
    assert found.verdict == "pass", found.detail


@pytest.mark.parametrize("cache", [None, PackedCache], ids=["dynamic", "packed"])
def test_a_llama_decodes_as_eager_does(cache: Cache | None) -> None:
    """Prompt and steps, with transformers' cache and with blocks that are read in place."""
    assert_within_budget(llama(), cache)


@pytest.mark.parametrize("cache", [None, PackedCache], ids=["dynamic", "packed"])
def test_padding_on_the_left_changes_nothing(cache: Cache | None) -> None:
    """A shorter sequence beside a longer one."""
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, :5] = 0
    assert_within_budget(llama(), cache, mask)


@pytest.mark.parametrize("cache", [None, PackedCache], ids=["dynamic", "packed"])
def test_a_model_of_delta_rule_and_attention_decodes_as_eager_does(cache: Cache | None) -> None:
    """One layer of each; the delta rule and its convolution run through the library call."""
    model = qwen3_next()
    eager = decoded(model, "eager")
    assert attach(model) == 1
    ours = decoded(model, "attnctl", cache)
    truth = exact(qwen3_next())
    found = compare(ours, eager, truth)
    assert found.verdict == "pass", found.detail


def test_a_profile_decides_what_runs_and_the_logits_stay() -> None:
    """Timings that put FLEX_ATTENTION first for prompts and CPU_ATTN for steps."""
    model = llama()
    machine = attnctl.probe()
    options = Options(dtype="float32")
    bare = attnctl.plan(model.config.to_dict(), machine, profile="none", options=options)
    times = {"prefill": (9.0, 1.0), "decode": (1.0, 9.0)}
    points = tuple(
        Point(
            phase=phase,
            batch=2,
            context=LENGTH,
            query=query,
            timings=(
                Timing(backend="CPU_ATTN", median_us=times[phase][0]),
                Timing(backend="FLEX_ATTENTION", median_us=times[phase][1]),
            ),
        )
        for phase, query in (("prefill", LENGTH), ("decode", 1))
    )
    profile = Profile(
        name="made",
        key=key_of(machine, None),
        entries=(Entry(shape=shape_of(bare[0].layer), points=points),),
    )
    timed = attnctl.plan(model.config.to_dict(), machine, profile=profile, options=options)
    assert timed[0].pick(2, LENGTH, LENGTH).backend == "FLEX_ATTENTION"
    assert timed[0].pick(2, LENGTH + 3, 1).backend == "CPU_ATTN"
    assert bare[0].pick(2, LENGTH, LENGTH).evidence == "default"
    use_plan(model.config, timed)
    assert plan_of(model.config, torch.float32) is timed
    assert_within_budget(model)


def test_the_packed_cache_is_read_where_it_lies() -> None:
    """Keys and values of update lie in blocks of the pages that the backends take."""
    cache = PackedCache(LlamaConfig(**SIZES))
    key, value = torch.randn(2, 2, 70, 32), torch.randn(2, 2, 70, 32)
    cache.update(key[:, :, :69], value[:, :, :69], 0)
    keys, values = cache.update(key[:, :, 69:], value[:, :, 69:], 0)
    assert torch.equal(keys, key)
    assert torch.equal(values, value)
    for page in (16, 32, 64):
        packed = packed_view(keys, values, page)
        assert packed is not None
        assert packed.cache.data_ptr() == keys.data_ptr()
        rows = packed.cache[packed.block_table.long()].flatten(1, 2)[:, :70].transpose(1, 2)
        assert torch.equal(rows[..., :32], key)
        assert torch.equal(rows[..., 32:], value)


def test_keys_that_lie_otherwise_are_not_taken_for_blocks() -> None:
    """Apart, or beside each other in another stride, or short of a whole block's memory."""
    apart = torch.randn(2, 2, 64, 32)
    assert packed_view(apart, apart.clone(), 16) is None
    both = torch.randn(1, 40, 2, 64)
    keys, values = both[..., :32].transpose(1, 2), both[..., 32:].transpose(1, 2)
    assert packed_view(keys, values, 16) is None
    assert packed_view(keys[:, :, :32], values[:, :, :32], 16) is not None


def test_a_packed_cache_reorders_crops_and_forgets() -> None:
    """What beam search and assisted decoding ask of a cache."""
    cache = PackedCache(LlamaConfig(**SIZES))
    key, value = torch.randn(3, 2, 9, 32), torch.randn(3, 2, 9, 32)
    cache.update(key, value, 0)
    layer = cache.layers[0]
    cache.reorder_cache(torch.tensor([2, 0, 0]))
    assert torch.equal(layer.keys, key[[2, 0, 0]])
    cache.crop(-4)
    assert layer.get_seq_length() == 5
    assert torch.equal(layer.values, value[[2, 0, 0], :, :5])
    cache.batch_select_indices(torch.tensor([1]))
    cache.batch_repeat_interleave(2)
    assert torch.equal(layer.keys, key[[0, 0], :, :5])
    cache.reset()
    assert layer.get_seq_length() == 0
    keys, _ = cache.update(key[:2], value[:2], 0)
    assert torch.equal(keys, key[:2])


def test_a_model_that_is_an_encoder_alone_computes_as_eager_does() -> None:
    """It keeps no cache, and the kernels are called with blocks all the same."""
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=32, hidden_size=64, **sizes)).eval()
    tokens, mask = torch.randint(0, 32, (2, 9)), torch.ones(2, 9, dtype=torch.int64)
    mask[1, 5:] = 0
    found = []
    for by in ("eager", "attnctl"):
        model.set_attn_implementation(by)
        with torch.no_grad():
            found.append(model(tokens, attention_mask=mask).last_hidden_state[mask.bool()])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
