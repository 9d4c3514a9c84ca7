"""Each operation called once as a user's program would, on tensors without memory.

Only shapes, dtypes and strides count, but for the lengths of a batch: code that asks the device for
them gets their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.ops.case import Case


def call(runtime: Any, case: Case, batch: Any = None) -> None:
    """Writes the cache where there is one, then runs the case's own call.

    batch: what built() gave, for who calls one case many times: its numbers are most of the work.
    """
    _CALLS[case.op](runtime, case, built(case) if batch is None else batch)


def built(case: Case) -> Any:
    """The batch that a case is tried on, with its numbers, on the processor."""
    return import_module(f"attnctl.ops.{_BUILDERS.get(case.op, 'state_inputs')}").build(case)


class Known(torch.Tensor):  # type: ignore[misc]
    """A tensor without memory, of which the numbers are known."""

    numbers: Any = None

    def tolist(self) -> Any:
        return self.numbers


def _known(tensor: Tensor) -> Tensor:
    made = _meta(tensor).as_subclass(Known)
    made.numbers = tensor.tolist()
    return made


def _meta(tensor: Tensor) -> Tensor:
    """The tensor's shape, dtype and strides without its memory."""
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    whole = torch.empty(max(reach, 0), dtype=tensor.dtype, device="meta")
    return whole.as_strided(tensor.shape, tensor.stride())


def _without_memory(value: Any) -> Any:
    """A Struct with every tensor of it on the meta device."""
    changed = {
        name: _meta(one)
        for name in value.__struct_fields__
        if isinstance(one := getattr(value, name), Tensor)
    }
    return msgspec.structs.replace(value, **changed)


def _metadata(runtime: Any, batch: Any, slots: Tensor) -> Any:
    """The runtime's metadata for a call that writes these slots."""
    return runtime.build_metadata(
        _known(batch.query_start_loc),
        _known(batch.seq_lens),
        _meta(batch.block_table),
        _meta(slots),
        max_query_len=batch.max_query_len,
        max_seq_len=batch.max_seq_len,
    )


def _paged(runtime: Any, case: Case, batch: Any) -> None:
    from attnctl.ops.paged_cases import widths
    from attnctl.ops.paged_trial import empty_cache

    cache = empty_cache(runtime, batch, "meta")
    metadata = _metadata(runtime, batch, batch.slots[batch.new])
    params = _without_memory(batch.params)
    query, key, value = (_meta(x) for x in (batch.query, batch.key, batch.value))
    runtime.write_cache(key, value, cache, metadata, params)
    out = query.new_empty(query.shape[0], query.shape[1], widths(case)[1])
    runtime.forward(query, cache, metadata, params, out)


def _mla(runtime: Any, case: Case, batch: Any) -> None:

    cache, metadata = _latent_cache(runtime, batch)
    query, lse = _meta(batch.query), _lse(batch)
    if case["form"] == "absorbed":
        out = query.new_empty(*query.shape[:2], case.count("lora"))
        runtime.forward(query, cache, metadata, batch.params, out, lse)
        return
    out = query.new_empty(*query.shape[:2], case.count("v"))
    weights = (_meta(batch.w_uk), _meta(batch.w_uv))
    chunk = case.count("chunk")
    runtime.prefill(query, cache, metadata, batch.params, *weights, out=out, lse=lse, chunk=chunk)


def _mla_sparse(runtime: Any, case: Case, batch: Any) -> None:

    cache, metadata = _latent_cache(runtime, batch)
    query = _meta(batch.query)
    out = query.new_empty(*query.shape[:2], case.count("lora"))
    shape = (query.shape[0], case.count("topk"))
    slots = torch.empty(shape, dtype=torch.int32, device="meta")
    runtime.forward(query, cache, metadata, slots, batch.params, out, _lse(batch))


def _latent_cache(runtime: Any, batch: Any) -> tuple[Tensor, Any]:
    """The cache, after a write of the batch's tokens, and the metadata."""
    case = batch.case
    names = ("page", "lora", "rope")
    shape = [batch.num_blocks, *(case.count(name) for name in names)]
    if case.op == "mla_sparse":
        shape.append(str(case["kv_cache_dtype"]))
    storage = _storage(case)
    cache = torch.empty(runtime.cache_shape(*shape), dtype=storage, device="meta")
    metadata = _metadata(runtime, batch, batch.slots[batch.new])
    runtime.write_cache(_meta(batch.latent), _meta(batch.rope), cache, metadata, batch.params)
    return cache, metadata


def _storage(case: Case) -> torch.dtype:
    from attnctl.ops.mla_inputs import PACKED
    from attnctl.ops.paged_trial import storage_dtype

    return torch.uint8 if case["kv_cache_dtype"] == PACKED else storage_dtype(case)


def _lse(batch: Any) -> Tensor:
    return torch.empty(batch.query.shape[:2], dtype=torch.float32, device="meta")


def _indexer(runtime: Any, case: Case, batch: Any) -> None:
    from attnctl.ops.indexer import index_cache_shape

    shape = index_cache_shape(batch.num_blocks, case.count("page"), case.count("head_dim"))
    cache = torch.empty(shape, dtype=torch.uint8, device="meta")
    metadata = _metadata(runtime, batch, batch.slots)
    runtime.write_index(_meta(batch.key), cache, metadata, batch.params)
    query, weights = _meta(batch.query), _meta(batch.weights)
    picks = torch.empty((query.shape[0], batch.params.topk), dtype=torch.int32, device="meta")
    runtime.select_tokens(query, weights, cache, metadata, batch.params, picks)


def _merge_states(runtime: Any, case: Case, batch: Any) -> None:

    states = [_meta(state) for state in batch]
    out, lse = torch.empty_like(states[0]), torch.empty_like(states[1])
    runtime.merge_states(*states, out=out, lse=lse)


def _state(runtime: Any, case: Case, batch: Any) -> None:

    accepted, speculative = batch.num_accepted, batch.speculative
    metadata = runtime.build_metadata(
        _known(batch.query_start_loc),
        _meta(batch.state_indices),
        _meta(batch.num_computed_tokens),
        max_query_len=max(batch.lengths, default=0),
        num_accepted=None if accepted is None else _meta(accepted),
        speculative=None if speculative is None else _meta(speculative),
        num_spec=case.count("drafts"),
    )
    runtime.forward(_without_memory(batch.inputs), _meta(batch.pool), metadata)


_BUILDERS = {
    "paged": "paged_inputs",
    "diffkv": "paged_inputs",
    "mla": "mla_inputs",
    "mla_sparse": "mla_inputs",
    "indexer": "indexer_trial",
    "merge_states": "merge_states_trial",
}
"""Operation -> the module that builds its batches; those of states share one."""

_CALLS: dict[str, Callable[[Any, Case, Any], None]] = {
    "paged": _paged,
    "diffkv": _paged,
    "mla": _mla,
    "mla_sparse": _mla_sparse,
    "indexer": _indexer,
    "merge_states": _merge_states,
    **dict.fromkeys(("gdn", "mamba1", "mamba2", "short_conv", "linear"), _state),
}
