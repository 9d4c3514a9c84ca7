"""Backends of latent attention refuse input that their kernels would read beyond, or misread."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata, open_backend

PARAMS = Latent(scale=0.1, kv_lora_rank=128)
NAMES = ("CPU_MLA", "CPU_MLA_SPARSE")


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def batch(runtime: Any, **changes: Any) -> Metadata:
    """Sequences of 2, 0 and 1 query tokens over 20, 0 and 7 tokens of context, one row padding."""
    arguments = {
        "query_start_loc": ints(0, 2, 2, 3),
        "seq_lens": ints(20, 0, 7),
        "block_table": torch.tensor([[1, 0], [0, 0], [2, 0]], dtype=torch.int32),
        "slot_mapping": torch.tensor([18, 19, -1]),
        "max_query_len": 2,
        "max_seq_len": 32,
    }
    made: Metadata = runtime.build_metadata(**(arguments | changes))
    return made


def rows(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, dtype=dtype)


QUERY, CACHE = rows(4, 2, 144), torch.zeros(3, 16, 144)
LATENT, ROPE = rows(4, 128), rows(4, 16)
SLOTS = torch.full((4, 5), -1, dtype=torch.int32)


def forward(name: str, query: Tensor, cache: Tensor, metadata: Metadata, **more: Any) -> Tensor:
    params = more.pop("params", PARAMS)
    named = more.pop("slots", SLOTS)
    runtime = open_backend(name)
    between = [named] if name.endswith("SPARSE") else []
    found: Tensor = runtime.forward(query, cache, metadata, *between, params, **more)
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seq_lens": torch.ones(3)}, r"seq_lens must be a tensor of integers; .*float32"),
        ({"block_table": ints(1, 0, 2)}, r"block_table must have 2 dimensions.*\[3\]"),
        ({"seq_lens": ints(20, 0, 7).to("meta")}, "on one device; .*seq_lens on meta"),
        ({"query_start_loc": ints(0, 2, 3)}, "3 entries for 3 seq_lens; it needs 4"),
        ({"query_start_loc": ints(0, 2, 1, 3)}, "entry 2 is 1 after 2"),
        ({"seq_lens": ints(1, 0, 7)}, r"sequence 0 has 2 query tokens and seq_lens\[0\] is 1"),
        ({"max_seq_len": 19}, "max_seq_len must be 20 or more"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(
    name: str, changes: dict[str, Any], sentence: str
) -> None:
    """Each in a sentence that names the backend and says what was found."""
    with pytest.raises(InputError, match=f"^{name}: .*{sentence}"):
        batch(open_backend(name), **changes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seq_lens": torch.ones(3)}, r"seq_lens must be a tensor of integers of 1 dimension; "),
        ({"block_table": ints(1, 0, 2)}, r"integers of 2 dimensions; it is \[3\]"),
        ({"query_start_loc": ints(0, 2, 3)}, "3 entries for 3 seq_lens; it needs 4"),
        ({"block_table": ints(0, 0)[None]}, "1 rows for 3 seq_lens"),
    ],
)
def test_on_a_device_that_nobody_waits_for_shapes_are_checked(
    changes: dict[str, Any], sentence: str
) -> None:
    """A tensor without values stands for one that may not be read."""
    runtime = open_backend("CPU_MLA")
    arguments = {"query_start_loc": ints(0, 2, 2, 3), "seq_lens": ints(20, 0, 7)}
    arguments |= {"block_table": ints(1, 0, 0, 0, 2, 0).view(3, 2), "slot_mapping": ints(1, 2, 3)}
    away = {key: tensor.to("meta") for key, tensor in (arguments | changes).items()}
    with pytest.raises(InputError, match=f"^CPU_MLA: .*{sentence}"):
        batch(runtime, **away)


def test_a_batch_of_another_device_comes_in_the_kernels_integers() -> None:
    """Lengths in int32, slots in int64, whatever they came in."""
    away = {
        "query_start_loc": torch.tensor([0, 1], device="meta"),
        "seq_lens": torch.ones(1, dtype=torch.int64, device="meta"),
        "block_table": torch.ones(1, 1, dtype=torch.int64, device="meta"),
        "slot_mapping": torch.ones(1, dtype=torch.int32, device="meta"),
    }
    made = batch(open_backend("CPU_MLA"), **away)
    assert made.seq_lens.dtype is made.block_table.dtype is torch.int32
    assert made.query_start_loc.dtype is torch.int32
    assert made.slot_mapping.dtype is torch.int64


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("latent", "rope", "cache", "changes", "sentence"),
    [
        (LATENT[0], ROPE, CACHE, {}, r"latent must be \[T, L\]"),
        (LATENT, ROPE[:3], CACHE, {}, r"they are \[4, 128\] and \[3, 16\]"),
        (LATENT.double(), ROPE.double(), CACHE, {}, "float64"),
        (LATENT, ROPE.half(), CACHE, {}, "both float32, float16 or bfloat16"),
        (LATENT[:2], ROPE[:2], CACHE, {}, "3 entries for 2 rows"),
        (LATENT, ROPE, CACHE, {"slot_mapping": ints(48)}, "slot 48 .* end at slot 47"),
        (LATENT, ROPE, torch.zeros(3, 24, 144), {}, "multiple of 16 tokens; they hold 24"),
        (LATENT, ROPE, torch.zeros(3, 16, 160), {}, r"want \[T, H, L \+ R\] and \[N, P, 144\]"),
        (LATENT, ROPE, torch.zeros(3, 144, 16).mT, {}, "last dimension dense"),
        (LATENT, ROPE, CACHE.to("meta"), {}, "must lie on the cpu; one is on meta"),
    ],
)
def test_a_write_that_does_not_fit_is_refused(
    name: str, latent: Tensor, rope: Tensor, cache: Tensor, changes: dict[str, Any], sentence: str
) -> None:
    """Nothing of the cache changes then."""
    runtime = open_backend(name)
    with pytest.raises(InputError, match=f"^{name}: .*{sentence}"):
        runtime.write_cache(latent, rope, cache, batch(runtime, **changes), PARAMS)
    assert cache.is_meta or not cache.any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("query", "cache", "more", "sentence"),
    [
        (QUERY[0], CACHE, {}, r"query must be \[T, H, D\]"),
        (QUERY.double(), CACHE, {}, "float64"),
        (rows(4, 2, 128), CACHE, {}, "do not fit with kv_lora_rank 128"),
        (rows(4, 2, 64), rows(3, 16, 64), {}, "kv_lora_rank must be a part of the row's 64"),
        (QUERY[:2], CACHE, {"slots": SLOTS[:2]}, "query has 2 rows; query_start_loc ends at 3"),
        (QUERY, CACHE, {"out": rows(4, 2, 144)}, r"out must be \[4, 2, 128\]"),
        (QUERY, CACHE, {"out": rows(4, 2, 128).half()}, "out must be .*float32 on cpu"),
        (QUERY, CACHE, {"out": rows(4, 128, 2).mT}, "out's last dimension must be dense"),
        (QUERY, CACHE, {"lse": rows(4, 3)}, r"lse must be \[4, 2\] torch.float32"),
        (QUERY, CACHE[:, :, None], {}, r"the cache must be \[N, P, C\]"),
        (QUERY, CACHE.int(), {}, r"the cache must be \[N, P, C\].*int32"),
    ],
)
def test_a_query_that_does_not_fit_is_refused(
    name: str, query: Tensor, cache: Tensor, more: dict[str, Any], sentence: str
) -> None:
    """Shapes, types and rows, of the result too."""
    with pytest.raises(InputError, match=f"^{name}: .*{sentence}"):
        forward(name, query, cache, batch(open_backend(name)), **more)


def test_pages_beyond_the_cache_and_tables_too_narrow_are_refused() -> None:
    """Dense attention reads the block table; what is past a context may hold anything."""
    runtime = open_backend("CPU_MLA")
    with pytest.raises(InputError, match=r"CPU_MLA: block_table names block 2; .* blocks 0 to 1"):
        forward("CPU_MLA", QUERY, CACHE[:2], batch(runtime))
    narrow = batch(runtime, block_table=ints(1, 0, 2)[:, None])
    with pytest.raises(InputError, match="20 tokens needs 2"):
        forward("CPU_MLA", QUERY, CACHE, narrow)
    table = torch.tensor([[1, 0], [-7, 99], [2, 1 << 30]], dtype=torch.int32)
    out = forward("CPU_MLA", QUERY, CACHE, batch(runtime, block_table=table))
    assert not out[:3].any()


@pytest.mark.parametrize(
    ("slots", "sentence"),
    [
        (SLOTS[:3], r"slots must be \[4, K\] int32"),
        (SLOTS.long(), r"they are \[4, 5\] torch.int64"),
        (SLOTS[0], r"they are \[5\]"),
        (SLOTS.to("meta"), "slots is on meta"),
    ],
)
def test_slots_that_are_no_list_for_each_query_token_are_refused(
    slots: Tensor, sentence: str
) -> None:
    """[T, K] int32 beside the query."""
    metadata = batch(open_backend("CPU_MLA_SPARSE"))
    with pytest.raises(InputError, match=f"CPU_MLA_SPARSE: .*{sentence}"):
        forward("CPU_MLA_SPARSE", QUERY, CACHE, metadata, slots=slots)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"w_uk": rows(2, 24, 128)}, r"w_uk must be \[2, 32, 128\]"),
        ({"w_uv": rows(2, 8, 64)}, r"w_uv \[2, Dv, 128\]"),
        ({"w_uv": rows(2, 8, 128).half()}, "both float32, float16 or bfloat16"),
        ({"chunk": -1}, "chunk must be 0, or the context tokens"),
        ({"out": rows(4, 2, 128)}, r"out must be \[4, 2, 8\]"),
    ],
)
def test_a_prefill_that_does_not_fit_is_refused(changes: dict[str, Any], sentence: str) -> None:
    """Weights by the query's heads and the cache's columns."""
    runtime = open_backend("CPU_MLA")
    given = {"w_uk": rows(2, 32, 128), "w_uv": rows(2, 8, 128)} | changes
    with pytest.raises(InputError, match=f"CPU_MLA: .*{sentence}"):
        runtime.prefill(rows(4, 2, 48), CACHE, batch(runtime), PARAMS, **given)


def test_packed_rows_are_the_sparse_backends_alone() -> None:
    """A dense backend would read scales as values."""
    dense, sparse = open_backend("CPU_MLA"), open_backend("CPU_MLA_SPARSE")
    assert sparse.cache_shape(3, 64, 512, 64, "fp8_ds_mla") == (3, 64, 656)
    with pytest.raises(InputError, match="CPU_MLA: rows of fp8_ds_mla are not in its kernels"):
        dense.cache_shape(3, 64, 512, 64, "fp8_ds_mla")
    packed = torch.zeros(3, 16, 164, dtype=torch.uint8)
    with pytest.raises(InputError, match="uint8, whose packed rows sparse backends read"):
        dense.write_cache(LATENT, ROPE, packed, batch(dense), PARAMS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ((0, 16, 512, 64), "num_blocks must be an integer of 1 or more; it is 0"),
        ((3, 24, 512, 64), r"block_size must be a multiple of 16; it is 24\. Try 32"),
        ((3, 16, 512.0, 64), "kv_lora_rank must be an integer of 1 or more; it is 512.0"),
        ((3, 16, 512, -1), "qk_rope_head_dim must be an integer of 0 or more; it is -1"),
    ],
)
def test_sizes_that_the_kernels_do_not_take_are_refused(
    name: str, sizes: tuple[Any, ...], sentence: str
) -> None:
    """Before anybody allocates; a model without rope has 0 columns of it."""
    with pytest.raises(InputError, match=f"^{name}: {sentence}"):
        open_backend(name).cache_shape(*sizes)
    assert open_backend(name).cache_shape(3, 16, 512, 0) == (3, 16, 512)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"query": None}, "one is no tensor, but None"),
        ({"cache": None}, "cache must be a tensor; it is None"),
        ({"params": None}, "params must be an attnctl.ops.mla.Latent; it is None"),
        ({"out": [1]}, r"out must be a tensor; it is \[1\]"),
        ({"query": torch.complex(QUERY, QUERY).conj().imag}, r"query\.resolve_neg\(\)"),
    ],
)
def test_what_is_no_tensor_or_no_parameters_is_refused(
    name: str, more: dict[str, Any], sentence: str
) -> None:
    """So is a negated view, whose numbers in memory have the other sign."""
    given = {"query": QUERY, "cache": CACHE} | more
    with pytest.raises(InputError, match=f"^{name}: .*{sentence}"):
        forward(name, given.pop("query"), given.pop("cache"), batch(open_backend(name)), **given)


@pytest.mark.parametrize("name", NAMES)
def test_a_write_into_rows_that_are_one_is_refused(name: str) -> None:
    """Each token would overwrite the others."""
    runtime = open_backend(name)
    with pytest.raises(InputError, match="tokens of a cache that is written must not lie on one"):
        runtime.write_cache(LATENT, ROPE, CACHE[:1].expand(3, -1, -1), batch(runtime), PARAMS)
