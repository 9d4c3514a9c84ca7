"""Every feature of paged attention on this device, against the specification."""

from __future__ import annotations

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import torch
from gpu_times import GPU

from attnctl.kernels.triton.paged import paged_attention, write_cache
from attnctl.ops import paged as specification
from attnctl.ops.compare import compare
from attnctl.ops.paged import Paged


def check():
    """Every feature on this device against the specification. Gives the failures."""
    long = {"lens": (1, 63, 64, 65, 700), "queries": (1, 2, 64, 65, 129)}
    steps = {"lens": (1, 17, 300, 1000), "queries": (1, 1, 1, 1)}
    several = {"lens": (20, 17, 300, 1000), "queries": (4, 1, 7, 3)}
    cases = []
    for base in (long, steps, several):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            cases.append({**base, "dtype": dtype})
        for heads, kv_heads in ((7, 1), (40, 8), (71, 1), (8, 8), (128, 1)):
            cases.append({**base, "heads": heads, "kv_heads": kv_heads, "width": 64})
        for width, value_width in (
            (40, 40),
            (72, 72),
            (80, 80),
            (96, 96),
            (112, 112),
            (192, 128),
            (256, 256),
            (512, 512),
        ):
            cases.append({**base, "width": width, "value_width": value_width})
        for page in (64, 128):
            cases.append({**base, "page": page})
            cases.append({**base, "page": page, "width": 192, "value_width": 128})
        cases += [
            {**base, "window": 50},
            {**base, "window": 50, "page": 64},
            {**base, "chunk": 64},
            {**base, "softcap": 5.0},
            {**base, "sinks": True},
            {**base, "sinks": True, "window": 128, "width": 64, "heads": 64},
            {**base, "alibi": True},
            {**base, "ranges": True, "window": 20},
            {**base, "causal": False, "window": 30, "window_right": 30},
            {**base, "causal": False},
            {**base, "cache": torch.float8_e4m3fn},
            {**base, "cache": torch.float8_e5m2},
            {**base, "cache": torch.int8},
            {**base, "layout": "hnd", "page": 64},
            {**base, "layout": "interleaved", "page": 64},
        ]
    # processes, since most of the time is Triton's compiler
    with ProcessPoolExecutor(12, mp_context=multiprocessing.get_context("spawn")) as pool:
        verdicts = list(pool.map(try_case, cases))
    pairs = zip(cases, verdicts, strict=True)
    failures = [f"{case}: {verdict}" for case, verdict in pairs if verdict]
    print(f"check: {len(cases) - len(failures)} of {len(cases)} right", flush=True)
    for failure in failures:
        print("  ", failure, flush=True)
    return failures


def try_case(case):
    """A case's verdict, or the text of its failure."""
    torch.manual_seed(1)
    try:
        return check_case(**case)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def check_case(
    *,
    lens,
    queries,
    dtype=torch.bfloat16,
    heads=32,
    kv_heads=8,
    width=128,
    value_width=None,
    page=16,
    cache=None,
    layout="nhd",
    sinks=False,
    alibi=False,
    ranges=False,
    **params,
):
    """Empty where one batch is right."""
    value_width = value_width or width
    kv_heads = min(kv_heads, heads)
    make = {"device": GPU, "dtype": dtype}
    pages = max(math.ceil(n / page) for n in lens)
    total = len(lens) * pages + 1
    tokens = sum(lens)
    stored = cache or dtype
    k_cache = empty_cache(layout, total, page, kv_heads, width, stored)
    v_cache = empty_cache(layout, total, page, kv_heads, value_width, stored)
    table = torch.randperm(total - 1, device=GPU, dtype=torch.int32) + 1
    table = table.view(len(lens), pages)
    slots = torch.cat([table[b, i // page] * page + i % page for b, n in enumerate(lens)
                       for i in [torch.arange(n, device=GPU)]]).long()  # fmt: skip
    key = torch.randn(tokens, kv_heads, width, **make)
    value = torch.randn(tokens, kv_heads, value_width, **make)
    k_scale = v_scale = 1.0
    if cache == torch.int8:
        k_scale = torch.zeros(total, page, kv_heads, device=GPU)
        v_scale = torch.zeros(total, page, kv_heads, device=GPU)
    elif cache is not None:
        k_scale, v_scale = 0.5, 0.25
    write_cache(key, value, k_cache, v_cache, slots, k_scale, v_scale)
    query = torch.randn(sum(queries), heads, width, **make)
    starts = torch.tensor([0, *torch.tensor(queries).cumsum(0).tolist()], device=GPU).int()
    lengths = torch.tensor(lens, device=GPU).int()
    spec = Paged(
        scale=width**-0.5,
        sinks=torch.randn(heads, device=GPU) if sinks else None,
        alibi_slopes=torch.rand(heads, device=GPU) if alibi else None,
        prefix_ranges=torch.tensor([[[3, 40], [45, 90]]] * len(lens), device=GPU).int()
        if ranges
        else None,
        k_scale=k_scale,
        v_scale=v_scale,
        **params,
    )
    out = torch.full((query.shape[0], heads, value_width), math.nan, **make)
    inputs = (query, k_cache, v_cache, table, starts, lengths, spec)
    paged_attention(*inputs, max_query_len=max(queries), max_seq_len=max(lens), out=out)
    exact = specification.paged_attention(*inputs)
    same = specification.paged_attention(*inputs, dtype=dtype)
    result = compare(out, exact, same)
    return "" if result.verdict == "pass" else f"{result.verdict} {result.detail}"


def empty_cache(layout, pages, page, heads, width, dtype):
    """A cache [N, P, Hk, width] with the strides of a layout, filled with NaN where it can be."""
    sizes = {
        "nhd": (pages, page, heads, width),
        "hnd": (pages, heads, page, width),
        "interleaved": (pages, 2, page, heads, width),
    }[layout]
    if dtype == torch.int8:
        whole = torch.zeros(sizes, device=GPU, dtype=dtype)
    else:
        whole = torch.full(sizes, math.nan, device=GPU, dtype=torch.float32).to(dtype)
    return {"nhd": whole, "hnd": whole.transpose(1, 2), "interleaved": whole[:, 0]}[layout]
