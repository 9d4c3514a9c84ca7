"""The trials of latent attention are green for a right backend and red for each planted fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from attnctl.ops import (
    indexer_cases,
    indexer_trial,
    merge_states_cases,
    merge_states_trial,
    mla_cases,
    mla_sparse_cases,
    mla_sparse_trial,
    mla_trial,
)
from attnctl.runtime import open_backend

NARROW = {"lora": 128, "rope": 16, "nope": 16, "v": 16, "heads": 2, "page": 16}

TRIALS = {
    "mla": (mla_cases, mla_trial, "CPU_MLA"),
    "merge_states": (merge_states_cases, merge_states_trial, "CPU_MLA"),
    "mla_sparse": (mla_sparse_cases, mla_sparse_trial, "CPU_MLA_SPARSE"),
    "indexer": (indexer_cases, indexer_trial, "CPU_MLA_SPARSE"),
}


class Faulty:
    """A sound runtime with one method replaced: `change(sound method, *arguments)`."""

    def __init__(self, sound: Any, name: str, change: Callable[..., Any]) -> None:
        self._sound, self._name, self._change = sound, name, change

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._sound, name)
        if name != self._name:
            return method
        return lambda *rest, **named: self._change(method, *rest, **named)


def tried(op: str, method: str = "", change: Callable[..., Any] | None = None, **params: Any):
    cases, trial, backend = TRIALS[op]
    runtime = open_backend(backend)
    if change is not None:
        runtime = Faulty(runtime, method, change)
    narrow = NARROW if op in ("mla", "mla_sparse") else {}
    return trial.try_case(runtime, cases.case(**{**narrow, **params}))


def forgets_kv_scale(method, query, cache, metadata, params, *rest):
    return method(query, cache, metadata, msgspec.structs.replace(params, kv_scale=1.0), *rest)


def scales_by_the_cached_width(method, query, cache, metadata, params, *rest):
    other = msgspec.structs.replace(params, scale=query.shape[2] ** -0.5)
    return method(query, cache, metadata, other, *rest)


def misses_the_last_token(method, query, cache, metadata, params, *rest):
    shorter = msgspec.structs.replace(metadata, seq_lens=metadata.seq_lens - 1)
    return method(query, cache, shorter, params, *rest)


def gives_lse_in_base_two(method, query, cache, metadata, params, out, lse):
    method(query, cache, metadata, params, out, lse)
    lse /= torch.tensor(2.0).log()


def writes_rows_of_no_sequence(method, query, cache, metadata, params, out, lse):
    method(query, cache, metadata, params, out, lse)
    out[-1] = 0.0


def stores_padding(method, latent, rope, cache, metadata, params):
    slots = metadata.slot_mapping
    moved = torch.where(slots < 0, cache.shape[0] * cache.shape[1] - 1, slots)
    method(latent, rope, cache, msgspec.structs.replace(metadata, slot_mapping=moved), params)


def loses_the_last_chunk(method, *arguments, chunk=0, **named):
    metadata = arguments[2]
    shorter = msgspec.structs.replace(metadata, seq_lens=metadata.seq_lens - 1)
    return method(*arguments[:2], shorter, *arguments[3:], chunk=chunk, **named)


@pytest.mark.parametrize(
    ("method", "change", "params"),
    [
        ("forward", forgets_kv_scale, {"kv_cache_dtype": "fp8_e4m3"}),
        ("forward", scales_by_the_cached_width, {}),
        ("forward", misses_the_last_token, {}),
        ("forward", gives_lse_in_base_two, {}),
        ("forward", writes_rows_of_no_sequence, {"padding": 1}),
        ("write_cache", stores_padding, {"padding": 1}),
        ("prefill", loses_the_last_chunk, {"form": "uncompressed", "chunk": 16}),
    ],
)
def test_each_fault_of_dense_attention_is_seen(method, change, params) -> None:
    """The same case is green without the fault."""
    assert tried("mla", **params).verdict == "pass"
    assert tried("mla", method, change, **params).verdict != "pass"


def reads_minus_one_as_a_row(method, query, cache, metadata, slots, *rest):
    # one of its own rows, so that no NaN gives it away
    return method(query, cache, metadata, torch.where(slots == -1, slots[:, :1], slots), *rest)


def stops_at_the_first_hole(method, query, cache, metadata, slots, *rest):
    gone = (slots < 0).cumsum(1) > 0
    return method(query, cache, metadata, torch.where(gone, -1, slots), *rest)


def clamps_strays(method, query, cache, metadata, slots, *rest):
    total = cache.shape[0] * cache.shape[1]
    return method(query, cache, metadata, slots.clamp(max=total - 1), *rest)


@pytest.mark.parametrize(
    ("change", "params"),
    [
        (reads_minus_one_as_a_row, {"picks": "first"}),
        (stops_at_the_first_hole, {"picks": "holes"}),
        (clamps_strays, {"picks": "stray"}),
        (stops_at_the_first_hole, {"picks": "holes", "kv_cache_dtype": "fp8_ds_mla"}),
    ],
)
def test_each_fault_of_sparse_attention_is_seen(change, params) -> None:
    """The same case is green without the fault."""
    assert tried("mla_sparse", **params).verdict == "pass"
    assert tried("mla_sparse", "forward", change, **params).verdict != "pass"


def test_an_indexer_that_drops_a_visible_token_is_seen_end_to_end() -> None:
    """Dense attention over the whole context is what its picks must give."""

    def drops(method, *arguments):
        method(*arguments)
        arguments[-1][:, 0] = -1

    assert tried("mla_sparse", picks="indexer", topk=64).verdict == "pass"
    assert tried("mla_sparse", "select_tokens", drops, picks="indexer", topk=64).verdict == "wrong"


def prefers_the_later_of_equals(method, query, weights, cache, metadata, params, out):
    logits = open_backend("CPU_MLA_SPARSE").index_logits(query, weights, cache, metadata, params)
    order = logits.flip(1).sort(dim=1, descending=True, stable=True).indices[:, : params.topk]
    picks = (logits.shape[1] - 1 - order).sort(dim=1).values
    out[: picks.shape[0], : picks.shape[1]] = picks.int()


def sees_the_future(method, query, weights, cache, metadata, params):
    later = msgspec.structs.replace(metadata, seq_lens=metadata.seq_lens + 1)
    return method(query, weights, cache, later, params)[:, : metadata.max_seq_len]


@pytest.mark.parametrize(
    ("method", "change", "params"),
    [
        ("select_tokens", prefers_the_later_of_equals, {"queries": "1", "contexts": "64"}),
        ("index_logits", sees_the_future, {"queries": "3", "contexts": "20"}),
    ],
)
def test_each_fault_of_the_indexer_is_seen(method, change, params) -> None:
    """The same case, with many equal logits, is green without the fault."""
    assert tried("indexer", ties=True, **params).verdict == "pass"
    assert tried("indexer", method, change, ties=True, **params).verdict == "wrong"


def takes_the_mean(method, out_a, lse_a, out_b, lse_b, out, lse):
    method(out_a, lse_a, out_b, lse_b, out, lse)
    out.copy_((out_a + out_b) / 2)


def lets_nan_through(method, out_a, lse_a, out_b, lse_b, out, lse):
    method(out_a, lse_a, out_b, lse_b, out, lse)
    out += 0.0 * out_a


@pytest.mark.parametrize(
    ("change", "empty"), [(takes_the_mean, "neither"), (lets_nan_through, "a")]
)
def test_each_fault_of_merging_is_seen(change, empty: str) -> None:
    """The same case is green without the fault."""
    assert tried("merge_states", empty=empty).verdict == "pass"
    assert tried("merge_states", "merge_states", change, empty=empty).verdict != "pass"
