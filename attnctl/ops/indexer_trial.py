"""Tries one backend on one case of the lightning indexer."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.latent_runtime import MlaSparseRuntime
from attnctl.ops.case import Case
from attnctl.ops.compare import Comparison, compare, fault
from attnctl.ops.indexer import (
    Indexing,
    index_cache_shape,
    index_logits,
    key_planes,
    pick_topk,
    write_index_keys,
)
from attnctl.ops.packed_rows import GROUP, quantize_groups
from attnctl.ops.paged_cases import lengths
from attnctl.ops.paged_inputs import Placed, shuffled_pages

DISTINCT = 5
"""Different index keys of a case about ties."""

STRAY = -2
"""What picks are filled with before a run: no pick, and not the -1 of "none" either."""


class IndexBatch(Placed, frozen=True, kw_only=True):
    """One case's tensors. query: [T + padding, Hi, D]. weights: [T + padding, Hi] float32.

    key: [T_all + padding, D].
    """

    query: Tensor
    weights: Tensor
    key: Tensor
    params: Indexing


def build(case: Case, device: torch.device | str = "cpu") -> IndexBatch:
    """The tensors of a case. The same case gives the same numbers on every device."""
    generator = torch.Generator().manual_seed(case.seed)
    queries, contexts = lengths(case, "queries"), lengths(case, "contexts")
    padding, heads, width = (case.count(name) for name in ("padding", "index_heads", "head_dim"))
    tokens, total = sum(queries) + padding, sum(contexts) + padding
    query = _numbers(case, generator, tokens, heads, width)
    weights = _numbers(case, generator, tokens, heads)
    key = _numbers(case, generator, total, width)
    if case["ties"] and total:
        # few keys, many times: the last place of a list is always contested
        key = key[torch.randint(0, min(total, DISTINCT), (total,), generator=generator)]
        # the same largest magnitude in every group, so that every key has the same scale
        key[:, ::GROUP] = 448.0
        query[..., ::GROUP] = 0.0
    dtype = getattr(torch, str(case["dtype"]))
    if case["query_dtype"] == "fp8_e4m3":
        values, scales = quantize_groups(query.flatten(0, 1), width)
        query, weights = values.view_as(query), weights * scales.view_as(weights)
    else:
        query = query.to(dtype)
    table, slots, blocks = shuffled_pages(contexts, case.count("page"), generator)
    return IndexBatch(
        case=case,
        query=query.to(device),
        weights=weights.to(device),
        key=key.to(dtype).to(device),
        slots=slots.to(device),
        block_table=table.to(device),
        query_start_loc=torch.tensor([0, *queries]).cumsum(0).to(torch.int32).to(device),
        seq_lens=torch.tensor(contexts, dtype=torch.int32, device=device),
        num_blocks=blocks,
        params=Indexing(
            topk=case.count("topk"),
            scale=1.0 if case["ties"] else (heads * width) ** -0.5,
            ue8m0=bool(case["ue8m0"]),
        ),
    )


def _numbers(case: Case, generator: torch.Generator, *shape: int) -> Tensor:
    if case["ties"]:
        return torch.randint(-2, 3, shape, generator=generator).float()
    return torch.randn(shape, generator=generator)


def try_case(
    runtime: MlaSparseRuntime, case: Case, device: torch.device | str = "cpu"
) -> Comparison:
    """Writes the keys, compares logits, then judges the picks by the exact logits."""
    batch = build(case, device)
    shape = index_cache_shape(batch.num_blocks, case.count("page"), case.count("head_dim"))
    if runtime.index_cache_shape(*shape[:2], case.count("head_dim")) != shape:
        return fault("wrong", f"index cache: want {shape}")
    cache = torch.full(shape, 255, dtype=torch.uint8, device=device)
    padding = batch.slots.new_full((case.count("padding"),), -1)
    metadata = batch.metadata(runtime, torch.cat([batch.slots, padding]))
    runtime.write_index(batch.key, cache, metadata, batch.params)
    wanted = torch.full(shape, 255, dtype=torch.uint8)
    write_index_keys(batch.key.cpu(), wanted, batch.slots.cpu(), batch.params)
    differs = _cache_fault(cache.cpu(), wanted)
    if differs:
        return fault("wrong", differs)
    live = sum(lengths(case, "queries"))
    exact, same = (_specified(batch, wanted, dtype) for dtype in (torch.float64, torch.float32))
    logits = runtime.index_logits(batch.query, batch.weights, cache, metadata, batch.params)
    found = logits[:live, : exact.shape[1]].cpu()
    visible = exact > -torch.inf
    if not torch.equal(found > -torch.inf, visible):
        return fault("wrong", "logits: -inf is not exactly where nothing is visible")
    result = compare(found[visible], exact[visible], same[visible])
    if result.verdict != "pass":
        return result
    picks = torch.full(
        (batch.query.shape[0], case.count("topk")), STRAY, dtype=torch.int32, device=device
    )
    runtime.select_tokens(batch.query, batch.weights, cache, metadata, batch.params, picks)
    if not bool((picks[live:] == STRAY).all()):
        return fault("overrun", "picks of rows of no sequence were written")
    error = float((same - exact)[visible].abs().max()) if bool(visible.any()) else 0.0
    wrong = picks_fault(picks[:live].cpu(), exact, 0.0 if case["ties"] else 4 * error)
    return fault("wrong", wrong) if wrong else result


def picks_fault(picks: Tensor, exact: Tensor, slack: float) -> str:
    """What is wrong with picks [T, K] given exact logits [T, S]; "" where nothing is.

    slack: how far a logit may be from exact in the precision of a kernel; 0: no pick may differ.
    """
    wanted = pick_topk(exact, picks.shape[1])
    counts = (wanted >= 0).sum(1)
    if not torch.equal((picks >= 0).sum(1), counts):
        return "picks: the number of tokens listed differs"
    column = torch.arange(picks.shape[1])
    if not bool(((picks == -1) == (column >= counts[:, None])).all()):
        return "picks: -1 is not exactly behind the listed tokens"
    listed = column[1:] < counts[:, None]
    if bool((listed & (picks[:, 1:] <= picks[:, :-1])).any()):
        return "picks: not in the order of the context, or one twice"
    for token, row in enumerate(picks):
        wrong = _row_fault(row[row >= 0].long(), wanted[token], exact[token], slack)
        if wrong:
            return f"picks of query token {token}: {wrong}"
    return ""


def _row_fault(chosen: Tensor, wanted: Tensor, exact: Tensor, slack: float) -> str:
    rightly = wanted[wanted >= 0].long()
    if torch.equal(chosen, rightly):
        return ""
    if chosen.numel() and int(chosen.max()) >= exact.shape[0]:
        return f"{int(chosen.max())} is no context token"
    least = exact[rightly].min()
    bad = chosen[exact[chosen] < least - slack]
    if bad.numel():
        return f"{int(bad[0])} does not belong"
    missed = torch.ones_like(exact, dtype=torch.bool)
    missed[chosen] = False
    better = (missed & (exact > least + slack)).nonzero()
    if better.numel():
        return f"{int(better[0])} is missing"
    return "" if slack else "of equal logits the first do not win"


def _specified(batch: IndexBatch, cache: Tensor, dtype: torch.dtype) -> Tensor:
    live = sum(lengths(batch.case, "queries"))
    return index_logits(
        batch.query[:live].cpu(),
        batch.weights[:live].cpu(),
        cache,
        batch.block_table.cpu(),
        batch.query_start_loc.cpu(),
        batch.seq_lens.cpu(),
        batch.params,
        dtype=dtype,
    )


def _cache_fault(found: Tensor, wanted: Tensor) -> str:
    """Keys byte for byte; scales to the last bit but one, for devices divide differently."""
    keys, scales = key_planes(found)
    right_keys, right_scales = key_planes(wanted)
    same = torch.isclose(scales, right_scales, rtol=2.4e-7, atol=0, equal_nan=True)
    if not bool(same.all()):
        return f"index cache: scale of slot {same.logical_not().nonzero()[0].tolist()[:2]} differs"
    bytes_differ = keys.view(torch.uint8) != right_keys.view(torch.uint8)
    if bool(bytes_differ.any()):
        return f"index cache: key of slot {bytes_differ.nonzero()[0].tolist()[:2]} differs"
    return ""
