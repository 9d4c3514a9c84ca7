"""The specification of sparse latent attention, its packed rows, and the whole of DeepSeek V3.2."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.exits import InputError
from attnctl.ops.indexer import Indexing, index_cache_shape, index_logits, pick_topk
from attnctl.ops.indexer import write_index_keys as write_keys
from attnctl.ops.mla import Latent, latent_attention
from attnctl.ops.mla_inputs import build, stored_rows
from attnctl.ops.mla_sparse import check_slots, sparse_latent_attention, to_slots
from attnctl.ops.mla_sparse_cases import case, layer_for
from attnctl.ops.packed_rows import pack_rows, row_bytes, unpack_rows

PARAMS = Latent(scale=0.2, kv_lora_rank=24)


def rows_and_query(tokens: int):
    """A cache [5, 4, 32] and a query [tokens, 2, 32], float64."""
    generator = torch.Generator().manual_seed(0)
    cache = torch.randn(5, 4, 32, generator=generator, dtype=torch.float64)
    return cache, torch.randn(tokens, 2, 32, generator=generator, dtype=torch.float64)


@given(data=st.data())
@settings(max_examples=40)
def test_minus_one_anywhere_is_as_if_it_were_not_there(data) -> None:
    """A list with holes gives what its valid slots alone give, in any order."""
    cache, query = rows_and_query(1)
    slots = data.draw(st.lists(st.integers(-1, 19), max_size=12))
    valid = [slot for slot in slots if slot >= 0]
    found = sparse_latent_attention(query, cache, torch.tensor([slots]).int(), PARAMS)
    turned = torch.tensor([valid[::-1]]).int()
    wanted = sparse_latent_attention(query, cache, turned, PARAMS)
    torch.testing.assert_close(found[0], wanted[0])
    torch.testing.assert_close(found[1], wanted[1])


def test_a_row_that_names_none_is_zero_and_its_lse_minus_infinity() -> None:
    """All -1, an empty list, and only slots beyond the cache."""
    cache, query = rows_and_query(1)
    for slots in ([[-1, -1, -1]], [[]], [[20, 21, 2**31 - 1]]):
        out, lse = sparse_latent_attention(query, cache, torch.tensor(slots).int(), PARAMS)
        assert torch.equal(out, torch.zeros(1, 2, 24, dtype=torch.float64))
        assert (lse == -torch.inf).all()


def test_a_slot_beyond_the_cache_is_never_read_and_the_debug_check_refuses_it() -> None:
    """It counts as -1; the check names the slot, the query token and the cache's size."""
    cache, query = rows_and_query(2)
    slots = torch.tensor([[3, -1, 7], [20, 1, -9]], dtype=torch.int32)
    clean = torch.tensor([[3, -1, 7], [-1, 1, -1]], dtype=torch.int32)
    found = sparse_latent_attention(query, cache, slots, PARAMS)
    assert torch.equal(found[0], sparse_latent_attention(query, cache, clean, PARAMS)[0])
    with pytest.raises(
        InputError, match=r"slot 20 of query token 1, place 0, is beyond .* 20 rows"
    ):
        check_slots(slots, cache)
    check_slots(clean, cache)


def test_unnamed_rows_are_not_read() -> None:
    """NaN in every row but the named ones changes nothing."""
    cache, query = rows_and_query(1)
    slots = torch.tensor([[2, 17, -1, 5]], dtype=torch.int32)
    found = sparse_latent_attention(query, cache, slots, PARAMS)
    poisoned = torch.full_like(cache, torch.nan).flatten(0, 1)
    poisoned[[2, 17, 5]] = cache.flatten(0, 1)[[2, 17, 5]]
    again = sparse_latent_attention(query, poisoned.view_as(cache), slots, PARAMS)
    assert torch.equal(found[0], again[0])


def test_a_slot_named_twice_counts_twice() -> None:
    """As a softmax over a list would have it."""
    cache, query = rows_and_query(1)
    twice = torch.tensor([[4, 9, 4]], dtype=torch.int32)
    out, _ = sparse_latent_attention(query, cache, twice, PARAMS)
    rows = cache.flatten(0, 1)[[4, 9, 4]]
    weights = torch.softmax(query[0] @ rows.t() * 0.2, -1)
    torch.testing.assert_close(out[0], weights @ rows[:, :24])


def test_positions_become_slots_by_the_sequence_of_their_query() -> None:
    """Pages of the right sequence; beyond its length, below 0 and rows of no sequence: -1."""
    table = torch.tensor([[3, 1], [0, 2], [4, 0]])
    starts, lens = torch.tensor([0, 1, 1, 3]), torch.tensor([6, 0, 3])
    positions = torch.tensor([[0, 5, 6, -1], [2, 0, 3, 1], [1, -5, 99, 2], [0, 1, 2, 3]])
    slots = to_slots(positions, table, starts, lens, page=4)
    assert slots.dtype is torch.int32
    assert slots.tolist() == [[12, 5, -1, -1], [18, 16, -1, 17], [17, -1, -1, 18], [-1] * 4]


def test_a_packed_row_of_deepseek_has_656_bytes_in_the_order_that_flashmla_reads() -> None:
    """512 FP8 bytes, 4 scales, 64 bfloat16: each where it belongs, by hand."""
    latent, rope = torch.zeros(1, 512), torch.arange(64.0)[None]
    latent[0, 0], latent[0, 128], latent[0, 511] = 448.0, -896.0, 1.0
    packed = pack_rows(latent, rope)
    assert packed.shape == (1, row_bytes(512, 64)) == (1, 656)
    assert packed[0, 0] == 0x7E  # 448, the largest finite value
    assert packed[0, 128] == 0xFE
    scales = packed[0, 512:528].view(torch.float32)
    expected = torch.tensor([1.0, 2.0, 1e-4 / 448, 1 / 448])
    torch.testing.assert_close(scales, expected, rtol=1e-6, atol=0)
    assert torch.equal(packed[0, 528:].view(torch.bfloat16).float(), rope[0])
    back = unpack_rows(packed, 512)
    assert back[0, [0, 128, 511]].tolist() == [448.0, -896.0, 1.0]


@given(seed=st.integers(0, 10**6), exponent=st.integers(-12, 12))
@settings(max_examples=30)
def test_packing_loses_no_more_than_e4m3_does_at_any_magnitude(seed: int, exponent: int) -> None:
    """Relative to its group's largest, half a step of 2^-3 above it and subnormals below."""
    generator = torch.Generator().manual_seed(seed)
    latent = torch.randn(3, 256, generator=generator) * 2.0**exponent
    rope = torch.randn(3, 16, generator=generator).bfloat16()
    back = unpack_rows(pack_rows(latent, rope), 256)
    groups = latent.unflatten(1, (2, 128))
    most = groups.abs().amax(-1, keepdim=True).clamp(min=1e-4)
    allowed = torch.maximum(groups.abs() * 2**-4, most / 448 * 2**-10) * 1.0001
    error = (back[:, :256].unflatten(1, (2, 128)) - groups).abs()
    assert (error <= allowed).all()
    assert torch.equal(back[:, 256:], rope.float())


def test_packed_rows_give_what_their_unpacked_values_give() -> None:
    """The kernel's view of bytes and plain rows agree, and a rank off the groups is refused."""
    batch = build(case(kv_cache_dtype="fp8_ds_mla", lora=128, rope=16, heads=2, page=16))
    cache = stored_rows(batch)
    slots = batch.slots[:9].view(3, 3).int()
    found = sparse_latent_attention(batch.query, cache, slots, batch.params)
    plain = unpack_rows(cache, 128, torch.float64)
    wanted = sparse_latent_attention(batch.query, plain, slots, batch.params)
    torch.testing.assert_close(found[0], wanted[0])
    with pytest.raises(InputError, match="multiple of 128"):
        row_bytes(192, 64)


def indexed(batch, topk: int):
    """What the indexer picks for a batch, from index keys of its own."""
    generator = torch.Generator().manual_seed(batch.case.seed)
    tokens, page = batch.query.shape[0], batch.case.count("page")
    query = torch.randn(tokens, 4, 128, generator=generator)
    weights = torch.randn(tokens, 4, generator=generator)
    shape = index_cache_shape(batch.num_blocks, page, 128)
    cache = torch.full(shape, 255, dtype=torch.uint8)
    params = Indexing(topk=topk, scale=0.05)
    key = torch.randn(batch.slots.shape[0], 128, generator=generator)
    write_keys(key, cache, batch.slots, params)
    places = (batch.block_table, batch.query_start_loc, batch.seq_lens)
    logits = index_logits(query, weights, cache, *places, params)
    return to_slots(pick_topk(logits, topk), *places, page)


@given(lengths=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=3))
@settings(max_examples=25)
def test_indexer_then_sparse_is_dense_where_the_context_is_no_longer_than_the_list(lengths) -> None:
    """Contexts of 0 to 13 tokens and lists of 13: every visible token is picked."""
    text = {"queries": "+".join(str(new) for new, _ in lengths)}
    text["contexts"] = "+".join(str(new + before) for new, before in lengths)
    batch = build(case(lora=24, rope=8, heads=2, page=4, dtype="float32", **text))
    cache = stored_rows(batch)
    places = (batch.block_table, batch.query_start_loc, batch.seq_lens)
    found = sparse_latent_attention(batch.query, cache, indexed(batch, 13), batch.params)
    dense = latent_attention(batch.query, cache, *places, batch.params)
    torch.testing.assert_close(found[0], dense[0])
    torch.testing.assert_close(found[1], dense[1])


@pytest.mark.parametrize(("context", "same"), [(2047, True), (2048, True), (2049, False)])
def test_around_the_real_list_of_2048_dense_and_sparse_part_at_the_first_token_more(
    context: int, same: bool
) -> None:
    """2047 and 2048 tokens are attended whole; of 2049 one is left out."""
    one = case(queries="1", contexts=str(context), lora=32, rope=8, heads=2, dtype="float32")
    batch = build(one)
    cache = stored_rows(batch)
    places = (batch.block_table, batch.query_start_loc, batch.seq_lens)
    slots = indexed(batch, 2048)
    assert int((slots >= 0).sum()) == min(context, 2048)
    found = sparse_latent_attention(batch.query, cache, slots, batch.params)
    dense = latent_attention(batch.query, cache, *places, batch.params)
    assert torch.allclose(found[1], dense[1], rtol=0, atol=1e-9) is same
    assert torch.allclose(found[0], dense[0], rtol=0, atol=1e-9) is same


def test_cases_ask_about_sparse_layers() -> None:
    """The layer knows its indexer."""
    layer = layer_for(case(topk=2048))
    assert layer.op == "mla_sparse"
    assert layer.group.indexer is not None
    assert layer.group.indexer.topk == 2048
