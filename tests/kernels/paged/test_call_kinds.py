"""What a call of paged attention is handed that is no tensor, or lies in one place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.mla import Latent
from attnctl.ops.paged import Paged
from attnctl.runtime import open_backend
from tests.kernels.paged.test_checks import (
    BLOCKS,
    HEADS,
    KV_HEADS,
    NAMES,
    PAGE,
    QUERY,
    WIDTH,
    a_cache,
    batch,
    exact,
    forward,
    ints,
    rows,
)

KEY = rows(3, KV_HEADS, WIDTH, seed=2)
SCALE = Paged(scale=0.3)


def negated(tensor: Tensor) -> Tensor:
    """The same numbers, in memory with the other sign: an imaginary part after conj()."""
    view = torch.complex(torch.zeros_like(tensor), -tensor).conj().imag
    assert view.is_neg()
    return view


@pytest.mark.parametrize("name", ["TRITON_ATTN", "CPU_ATTN"])
@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"cache": None}, "cache must be a tensor; it is None"),
        ({"out": [1]}, r"out must be a tensor; it is \[1\]"),
        ({"params": None}, "params must be an attnctl.ops.paged.Paged; it is None"),
        ({"params": {"scale": 1.0}}, "params must be an attnctl.ops.paged.Paged; it is {'scale'"),
        ({"query": QUERY[..., :0]}, "query heads of 0 do not fit"),
    ],
)
def test_what_is_no_tensor_and_no_parameters_is_refused_in_a_sentence(
    name: str, more: dict[str, Any], sentence: str
) -> None:
    """It names the argument and what was found there."""
    given = {"query": QUERY, "cache": a_cache(), "params": SCALE, "out": None} | more
    backend, metadata = open_backend(name), batch(name)
    with pytest.raises(InputError, match=f"^{name}: {sentence}"):
        backend.forward(given["query"], given["cache"], metadata, given["params"], given["out"])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_must_be_tensors_and_parameters(name: str) -> None:
    """A key that is a list, parameters that are none; the cache stays as it was."""
    cache = a_cache()
    before = cache.clone()
    for key, params, sentence in (
        ([1], SCALE, r"key must be a tensor; it is \[1\]"),
        (KEY, None, "params must be an attnctl.ops.paged.Paged; it is None"),
    ):
        with pytest.raises(InputError, match=f"^{name}: {sentence}"):
            open_backend(name).write_cache(key, KEY, cache, batch(name), params)
    assert torch.equal(cache, before)


def test_a_batch_that_build_metadata_did_not_make_is_refused() -> None:
    """The batch's own arguments in a dict, or nothing."""
    for metadata in (None, {"seq_lens": ints(1)}):
        with pytest.raises(InputError, match="metadata must be what build_metadata returns"):
            open_backend("CPU_ATTN").forward(QUERY, a_cache(), metadata, SCALE)


@pytest.mark.parametrize("name", NAMES)
def test_a_negated_view_is_right_or_refused(name: str) -> None:
    """Kernels that go by addresses would read its numbers with the other sign."""
    backend, metadata = open_backend(name), batch(name)
    with pytest.raises(InputError, match=r"query\.resolve_neg\(\)"):
        backend.forward(negated(QUERY), a_cache(), metadata, SCALE)
    with pytest.raises(InputError, match=r"value\.resolve_neg\(\)"):
        backend.write_cache(KEY, negated(KEY), a_cache(), metadata, SCALE)
    out, wanted = forward(name, SCALE, metadata, query=negated(QUERY).resolve_neg())
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_write_into_tokens_that_are_one_is_refused(name: str) -> None:
    """Each would overwrite the others. Such a cache may be read."""
    one = a_cache()[:1].expand(BLOCKS, -1, -1, -1)
    with pytest.raises(InputError, match="tokens of a cache that is written must not lie on one"):
        open_backend(name).write_cache(KEY, KEY, one, batch(name), SCALE)
    out, wanted = forward(name, SCALE, batch(name), cache=one)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["TRITON_ATTN", "CPU_ATTN"])
def test_scales_of_keys_and_values_must_be_two_tensors(name: str) -> None:
    """A write fills both: with one, the keys would be read by the values' scales."""
    room = torch.ones(BLOCKS, PAGE, KV_HEADS)
    flat = torch.ones(1, 1, 1).expand(BLOCKS, PAGE, KV_HEADS)
    for scales, sentence in (
        ((room, room), "k_scale and v_scale are one tensor"),
        ((room, flat), "scales of a cache that is written must not lie on one another"),
    ):
        params = Paged(scale=0.3, k_scale=scales[0], v_scale=scales[1])
        with pytest.raises(InputError, match=sentence):
            open_backend(name).write_cache(KEY, KEY, a_cache(torch.int8), batch(name), params)


@pytest.mark.parametrize("name", NAMES)
def test_a_range_over_everything_may_be_said_in_64_bits(name: str) -> None:
    """Its ends are cut to those of int32, not to what is left of them there."""
    everything = torch.tensor([[[-(1 << 40), 1 << 40]], [[0, (1 << 32) + 2]]])
    params = Paged(scale=0.3, prefix_ranges=everything)
    assert params.prefix_ranges is not None
    assert params.prefix_ranges.dtype is torch.int32
    out, wanted = forward(name, params, batch(name))
    without = exact(rows(3, HEADS, WIDTH, seed=1), a_cache(), Paged(scale=0.3, causal=False))
    torch.testing.assert_close(wanted, without)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)


def test_numbers_that_float32_does_not_have_are_refused() -> None:
    """A kernel would multiply with infinity, or divide by zero; a tiny scale is none."""
    for wrong, sentence in (
        ({"scale": 1e300}, "scale must be a number of float32"),
        ({"scale": 10**400}, "scale must be a finite number"),
        ({"scale": 1.0, "k_scale": -1e39}, "k_scale must be a number of float32"),
        ({"scale": 1.0, "v_scale": 1e-40}, "v_scale must be 1e-30 or more"),
    ):
        with pytest.raises(InputError, match=sentence):
            Paged(**wrong)
    with pytest.raises(InputError, match="Latent: scale must be a number of float32"):
        Latent(scale=-1e300, kv_lora_rank=16)
    assert Paged(scale=1e-300).scale == 0.0
    assert Paged(scale=3e38, k_scale=1e-30).k_scale == 1e-30


def test_sinks_are_real_numbers() -> None:
    """Of complex ones the kernels would take a half."""
    for wrong in (torch.ones(HEADS, dtype=torch.complex64), negated(torch.ones(HEADS))):
        with pytest.raises(InputError, match="sinks must hold real numbers"):
            Paged(scale=1.0, sinks=wrong)


@pytest.mark.parametrize("name", ["TRITON_ATTN", "CPU_ATTN"])
def test_a_batch_keeps_its_numbers_when_the_program_fills_its_own_tensors_anew(name: str) -> None:
    """A serving loop has one set of tensors for all its batches; the numbers were checked once."""
    own = {
        "query_start_loc": ints(0, 2, 3),
        "seq_lens": ints(5, 40),
        "block_table": ints([0, 0], [1, 2]),
        "slot_mapping": torch.tensor([3, 4, 71]),
    }
    metadata = batch(name, **own)
    for tensor in own.values():
        tensor.fill_(1 << 20)
    cache = a_cache()
    open_backend(name).write_cache(KEY, -KEY, cache, metadata, SCALE)
    assert torch.equal(cache[2, 7], torch.cat([KEY[2], -KEY[2]], dim=1))
    out, wanted = forward(name, SCALE, metadata, cache=cache)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)
