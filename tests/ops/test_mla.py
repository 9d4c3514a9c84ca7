"""The specification of latent attention: its two forms are one, and either is plain attention."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.ops.mla import (
    absorb,
    latent_attention,
    split_kv_b,
    uncompress,
    uncompressed_attention,
    values_of,
)
from attnctl.ops.mla_cases import case, layer_for
from attnctl.ops.mla_inputs import build, stored_rows
from attnctl.ops.paged import Paged, paged_attention

SMALL = {"lora": 24, "rope": 8, "nope": 12, "v": 10, "page": 4, "dtype": "float32", "heads": 3}

LENGTHS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 13)), max_size=4)


def batch_of(lengths, **changes):
    """A small batch of (query tokens, earlier context tokens) pairs, and its filled cache."""
    queries = "+".join(str(new) for new, _ in lengths)
    contexts = "+".join(str(new + before) for new, before in lengths)
    made = build(case(**{**SMALL, "queries": queries, "contexts": contexts, **changes}))
    return made, stored_rows(made)


def places(batch):
    return batch.block_table, batch.query_start_loc, batch.seq_lens


def in_float64(batch):
    return batch.query.double(), batch.w_uk.double(), batch.w_uv.double()


@given(lengths=LENGTHS)
@settings(max_examples=40)
def test_the_absorbed_form_is_the_uncompressed_form(lengths) -> None:
    """W_uk in the query and W_uv behind the sum give what keys and values of every head give."""
    batch, cache = batch_of(lengths, form="uncompressed")
    query, w_uk, w_uv = in_float64(batch)
    whole = uncompressed_attention(query, cache, *places(batch), w_uk, w_uv, batch.params)
    out, lse = latent_attention(absorb(query, w_uk), cache, *places(batch), batch.params)
    torch.testing.assert_close(values_of(out, w_uv), whole[0])
    torch.testing.assert_close(lse, whole[1])


@given(lengths=LENGTHS, chunk=st.integers(1, 20))
@settings(max_examples=40)
def test_context_in_chunks_is_context_at_once(lengths, chunk: int) -> None:
    """Merged by log-sum-exp, wherever the chunks end: before, on and beyond the causal edge."""
    batch, cache = batch_of(lengths, form="uncompressed")
    query, w_uk, w_uv = in_float64(batch)
    arguments = (query, cache, *places(batch), w_uk, w_uv, batch.params)
    whole = uncompressed_attention(*arguments)
    parts = uncompressed_attention(*arguments, chunk=chunk)
    torch.testing.assert_close(parts[0], whole[0])
    torch.testing.assert_close(parts[1], whole[1])


def test_it_is_paged_attention_with_one_kv_head_whose_value_is_a_view_of_its_key() -> None:
    """The specification of the other family, asked about the same cache, agrees."""
    batch, cache = batch_of([(3, 9), (1, 4), (0, 5)])
    params = Paged(scale=batch.params.scale)
    keys = cache[:, :, None]
    out, _ = latent_attention(batch.query, cache, *places(batch), batch.params)
    other = paged_attention(batch.query, keys, keys[..., :24], *places(batch), params)
    torch.testing.assert_close(out, other)


def test_uncompressed_is_what_torch_computes_over_the_two_halves_of_kv_b() -> None:
    """One sequence, keys and values by kv_b_proj's weight as a checkpoint holds it."""
    batch, cache = batch_of([(5, 0)], form="uncompressed", heads=2)
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(2 * (12 + 10), 24, generator=generator, dtype=torch.float64)
    w_uk, w_uv = split_kv_b(weight, heads=2, nope=12)
    query = batch.query.double()
    out, lse = uncompressed_attention(query, cache, *places(batch), w_uk, w_uv, batch.params)
    made = (batch.latent.double() @ weight.t()).unflatten(1, (2, 22))
    keys = torch.cat([made[..., :12], batch.rope.double()[:, None].expand(-1, 2, -1)], -1)
    heads = [x.transpose(0, 1)[None] for x in (query, keys, made[..., 12:])]
    want = torch.nn.functional.scaled_dot_product_attention(
        *heads, is_causal=True, scale=batch.params.scale
    )
    torch.testing.assert_close(out, want[0].transpose(0, 1))
    logits = torch.einsum("qhd,shd->qhs", query, keys) * batch.params.scale
    torch.testing.assert_close(lse[4], logits[4].logsumexp(-1))


def test_the_shared_rope_part_is_in_every_head_key_and_in_no_value() -> None:
    """Keys end in the row's rope columns, and values do not depend on them."""
    rows, w_uk, w_uv = torch.randn(4, 32), torch.randn(3, 12, 24), torch.randn(3, 10, 24)
    keys, values = uncompress(rows, w_uk, w_uv)
    assert torch.equal(keys[..., 12:], rows[:, None, 24:].expand(-1, 3, -1))
    rows[:, 24:] = torch.nan
    assert torch.equal(uncompress(rows, w_uk, w_uv)[1], values)


def test_pages_in_any_order_and_poison_elsewhere_change_nothing() -> None:
    """The same rows in ordered pages without NaN between them."""
    batch, cache = batch_of([(2, 7), (1, 11)])
    pages = batch.block_table.long()
    ordered = torch.zeros(pages.numel(), 4, 32)
    ordered[:] = torch.nan_to_num(cache[pages.flatten()])
    table = torch.arange(pages.numel()).view(pages.shape)
    moved = latent_attention(batch.query, ordered, table, *places(batch)[1:], batch.params)
    found = latent_attention(batch.query, cache, *places(batch), batch.params)
    assert torch.equal(found[0], moved[0])
    assert torch.equal(found[1], moved[1])


@pytest.mark.parametrize("name", ["fp8_e4m3", "fp8_e5m2"])
def test_an_fp8_cache_gives_what_its_scaled_values_give_and_saturates(name: str) -> None:
    """A stored value times kv_scale; what is beyond the format is its largest, never NaN."""
    batch, cache = batch_of([(2, 7)], kv_cache_dtype=name)
    plain = cache.float() * batch.params.kv_scale
    found = latent_attention(batch.query, cache, *places(batch), batch.params)
    unscaled = {"kv_scale": 1.0, "scale": batch.params.scale, "kv_lora_rank": 24}
    wanted = latent_attention(batch.query, plain, *places(batch), type(batch.params)(**unscaled))
    torch.testing.assert_close(found[0], wanted[0])
    ignored = latent_attention(batch.query, cache, *places(batch), type(batch.params)(**unscaled))
    assert (ignored[0] - wanted[0]).norm() > 0.1 * wanted[0].norm()
    stored = plain.flatten(0, 1)[batch.slots]
    assert stored.isfinite().all()
    assert (stored[:, 0] == (112.0 if name == "fp8_e4m3" else 224 * 1.0)).all()


def test_a_sequence_without_tokens_and_a_token_without_sequence_are_blank() -> None:
    """Lengths 0 beside others; rows past the last sequence give 0 and -inf."""
    batch, cache = batch_of([(0, 0), (2, 3), (0, 6)])
    query = torch.cat([batch.query, torch.full((1, 3, 32), torch.nan)])
    out, lse = latent_attention(query, cache, *places(batch), batch.params)
    assert out[:2].isfinite().all()
    assert torch.equal(out[2], torch.zeros(3, 24, dtype=torch.float64))
    assert (lse[2] == -torch.inf).all()


def test_cases_ask_about_latent_layers() -> None:
    """The layer has one KV head of L + R columns."""
    layer = layer_for(case(heads=128))
    assert (layer.op, layer.head_size, layer.head_size_v) == ("mla", 576, 512)
    assert (layer.heads, layer.kv_heads) == (128, 1)
