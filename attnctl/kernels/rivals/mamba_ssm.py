"""mamba-ssm: single tokens of a batch at once; longer rows one after the other.

Its scans take one sequence a batch entry, so the lengths are read from the device.
"""

from __future__ import annotations

from torch import Tensor

from attnctl.kernels.libraries import Load
from attnctl.kernels.rivals import loaded, refuse
from attnctl.kernels.rivals.rows import Rows, keep, put, take
from attnctl.ops.mamba1 import Mamba1
from attnctl.ops.mamba2 import Mamba2
from attnctl.runtime import StateMetadata

CHUNK = 256
UNLIMITED = (0.0, float("inf"))


def mamba2(inputs: Mamba2, state: Tensor, metadata: StateMetadata, out: Tensor, load: Load) -> None:
    """out: [T, H, Dv]; state: [slots, H, Dv, R]."""
    rows = take("mamba_ssm", state, metadata, out.shape[0])
    if metadata.max_query_len > 1:
        module = loaded("mamba_ssm", load, "mamba_ssm.ops.triton.ssd_combined")
        final = _scans2(module.mamba_chunk_scan_combined, inputs, rows, out)
    else:
        final = _step2(load, inputs, rows, out)
    keep(state, rows, final)


def _step2(load: Load, inputs: Mamba2, rows: Rows, out: Tensor) -> Tensor:
    limited = inputs.dt_limit != UNLIMITED
    refuse("mamba_ssm", limited, "selective_state_update has no limits of dt")
    heads, width = inputs.x.shape[1:]
    wide = (heads, width)
    skip = inputs.d
    if skip is not None and skip.dim() == 1:
        skip = skip[:, None].expand(wide)
    token = rows.starts[:-1].clamp(max=out.shape[0] - 1)
    return _step(
        load, rows, out, inputs.x[token], inputs.dt[token][:, :, None].expand(-1, -1, width),
        inputs.a[:, None, None].expand(*wide, inputs.b.shape[2]), inputs.b[token], inputs.c[token],
        D=skip, z=None if inputs.z is None else inputs.z[token],
        dt_bias=None if inputs.dt_bias is None else inputs.dt_bias[:, None].expand(wide),
        dt_softplus=inputs.softplus,
    )  # fmt: skip


def mamba1(inputs: Mamba1, state: Tensor, metadata: StateMetadata, out: Tensor, load: Load) -> None:
    """out: [T, C]; state: [slots, C, R]. Longer rows must be first chunks."""
    rows = take("mamba_ssm", state, metadata, out.shape[0])
    if metadata.max_query_len > 1:
        carried = bool((metadata.has_initial_state & rows.live).any())
        refuse("mamba_ssm", carried, "selective_scan_fn starts from no state")
        module = loaded("mamba_ssm", load, "mamba_ssm.ops.selective_scan_interface")
        final = _scans1(module.selective_scan_fn, inputs, rows, out)
    else:
        final = _step1(load, inputs, rows, out)
    keep(state, rows, final)


def _step1(load: Load, inputs: Mamba1, rows: Rows, out: Tensor) -> Tensor:
    token = rows.starts[:-1].clamp(max=out.shape[0] - 1)
    return _step(
        load, rows, out, inputs.x[token], inputs.dt[token], inputs.a, inputs.b[token],
        inputs.c[token], D=inputs.d, z=None if inputs.z is None else inputs.z[token],
        dt_bias=inputs.dt_bias, dt_softplus=inputs.softplus,
    )  # fmt: skip


def _step(load: Load, rows: Rows, out: Tensor, *arguments: Tensor, **named: object) -> Tensor:
    """A token of every row; rows.initial in place, and returned."""
    module = loaded("mamba_ssm", load, "mamba_ssm.ops.triton.selective_state_update")
    found: Tensor = module.selective_state_update(rows.initial, *arguments, **named)
    put(out, found[rows.owner.clamp(max=found.shape[0] - 1)], rows)
    return rows.initial


def spans(rows: Rows) -> list[tuple[int, slice]]:
    """Row and tokens of every live row: known on the host from here on."""
    starts = rows.starts.tolist()
    return [(b, slice(starts[b], starts[b + 1])) for b in rows.live.nonzero()[:, 0].tolist()]


def _scans2(call: object, inputs: Mamba2, rows: Rows, out: Tensor) -> Tensor:
    final = rows.initial.float()
    for b, at in spans(rows):
        found, last = call(  # type: ignore[operator]
            inputs.x[None, at], inputs.dt[None, at], inputs.a, inputs.b[None, at],
            inputs.c[None, at], CHUNK, D=inputs.d, dt_bias=inputs.dt_bias,
            z=None if inputs.z is None else inputs.z[None, at], initial_states=final[b : b + 1],
            dt_softplus=inputs.softplus, dt_limit=inputs.dt_limit, return_final_states=True,
        )  # fmt: skip
        out[at] = found[0].to(out.dtype)
        final[b] = last[0]
    return final


def _scans1(call: object, inputs: Mamba1, rows: Rows, out: Tensor) -> Tensor:
    final = rows.initial.float()
    for b, at in spans(rows):
        x, dt, b_in, c_in = (v[None, at].mT for v in (inputs.x, inputs.dt, inputs.b, inputs.c))
        found, last = call(  # type: ignore[operator]
            x, dt, inputs.a, b_in, c_in, inputs.d,
            z=None if inputs.z is None else inputs.z[None, at].mT, delta_bias=inputs.dt_bias,
            delta_softplus=inputs.softplus, return_last_state=True,
        )  # fmt: skip
        out[at] = found[0].mT.to(out.dtype)
        final[b] = last[0]
    return final
