"""The least time that a device needs for a layer at one point: its bytes and operations, counted.

A lower bound for orientation: every byte is read once, nothing waits, and the indexer of sparse
attention is left out.
"""

from __future__ import annotations

from math import prod

import msgspec

from attnctl.layer import KV_DTYPES
from attnctl.profile.keys import Key
from attnctl.profile.match import same_key
from attnctl.profile.values import Point, Profile, Shape

ITEM_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
STATE_BYTES = 4.0
"""Bytes of a number in a recurrent state; kernels keep it in float32."""
MLA_NOPE, MLA_VALUE = 128, 128
"""Widths of uncompressed latent attention (DeepSeek's), in which prompts are computed."""


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """What the device can do: 10^9 bytes and 10^9 operations a second; None: not known.

    source: where the bandwidth is from, in words.
    """

    bandwidth_gbps: float | None
    gflops: float | None
    source: str


def roof_of(profile: Profile) -> Roof:
    """From the tune's own measurement, else from a bundled machine of the same key."""
    measured, gflops = profile.conditions.get("read_gbps"), profile.conditions.get("matrix_gflops")
    compute = float(gflops) if isinstance(gflops, int | float) and gflops > 0 else None
    if isinstance(measured, int | float) and measured > 0:
        return Roof(bandwidth_gbps=float(measured), gflops=compute, source="measured by the tune")
    name, bandwidth = _bundled(profile.key)
    source = f"the data sheet of {name}" if bandwidth else "not known"
    return Roof(bandwidth_gbps=bandwidth, gflops=compute, source=source)


def _bundled(key: Key) -> tuple[str, float | None]:
    from attnctl import machines
    from attnctl.profile.document import key_of

    for name in machines.names():
        machine = machines.load(name)
        gpu = machine.gpus[0] if machine.gpus else None
        if same_key(key_of(machine, gpu), key):
            found = gpu.bandwidth_gbps if gpu else machine.cpu.bandwidth_gbps
            return name, found
    return "", None


def floor_us(shape: Shape, point: Point, roof: Roof) -> float | None:
    """The least time in microseconds; None where the bandwidth is not known."""
    if roof.bandwidth_gbps is None:
        return None
    memory = bytes_of(shape, point) / roof.bandwidth_gbps / 1e3
    compute = flops_of(shape, point) / roof.gflops / 1e3 if roof.gflops else 0.0
    return max(memory, compute) or None


def bytes_of(shape: Shape, point: Point) -> float:
    """Bytes that must be moved: the cache or the states once, queries in and outputs out."""
    item = ITEM_BYTES.get(shape.dtype, 2.0)
    tokens = point.batch * point.query
    if shape.state:
        states = sum(prod(sizes) for sizes in shape.state)
        width = max((sizes[-1] for sizes in shape.state if sizes), default=0)
        return 2 * point.batch * states * STATE_BYTES + 2 * tokens * width * item
    width, width_v = shape.head_size or 0, shape.head_size_v or shape.head_size or 0
    heads, kv_heads = shape.heads or 1, shape.kv_heads or 1
    # a latent cache holds K, of which V is a view
    cached = width if shape.op in ("mla", "mla_sparse") else kv_heads * (width + width_v)
    kept = point.batch * _kept(shape, point) * cached * (KV_DTYPES[shape.kv_cache_dtype] or item)
    return kept + tokens * heads * (width + width_v) * item


def flops_of(shape: Shape, point: Point) -> float:
    """Floating-point operations of both products; of a state, its update and its reading."""
    tokens = point.batch * point.query
    if shape.state:
        return 4.0 * tokens * max(prod(sizes) for sizes in shape.state)
    width, width_v = shape.head_size or 0, shape.head_size_v or shape.head_size or 0
    if shape.op == "mla" and point.phase == "prefill":
        width, width_v = MLA_NOPE + width - width_v, MLA_VALUE
    return 2.0 * tokens * (shape.heads or 1) * (width + width_v) * _seen(shape, point)


def _kept(shape: Shape, point: Point) -> float:
    """Tokens of one sequence's cache that some query reads."""
    if shape.topk:
        return min(point.context, point.query * shape.topk)
    if shape.window:
        return min(point.context, shape.window + point.query - 1)
    return point.context


def _seen(shape: Shape, point: Point) -> float:
    """Keys that a query sees, on average over the new tokens, which see one more each."""
    causal = not {"encoder", "encoder_only", "cross"} & set(shape.features)
    seen = point.context - (point.query - 1) / 2 if causal else float(point.context)
    return max(1.0, min(seen, *(limit for limit in (shape.window, shape.topk) if limit), seen))
