"""Cases of a model's own layers: their widths and masks, in each phase of serving. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.exits import InputError
from attnctl.model.spec import LayerGroup, ModelSpec, State
from attnctl.ops import mla_cases, mla_sparse_cases, paged_cases, state_cases
from attnctl.ops.case import Case, Value
from attnctl.ops.indexer_cases import case as indexer_case

LONGEST_SPAN = 512
"""A window or chunk up to here has a context that reaches past it; a wider one is off in a case,
which could not tell it from none."""

_DTYPES = ("float16", "bfloat16", "float32")

Params = dict[str, Value]


def model_cases(path: str) -> tuple[Case, ...]:
    """The cases of every group of layers that an operation computes.

    InputError: the file cannot be read, or no layer of it is of an operation that has cases.
    """
    from attnctl.model import read_model

    return cases_of(read_model(path))


def cases_of(spec: ModelSpec) -> tuple[Case, ...]:
    """The cases of a model, each once. InputError: there is none."""
    dtype = spec.dtype if spec.dtype in _DTYPES else "bfloat16"
    found = {
        one.text: one for group in spec.groups for one in _group_cases(group, {"dtype": dtype})
    }
    if not found:
        kinds = ", ".join(dict.fromkeys(group.kind for group in spec.groups)) or "none"
        raise InputError(
            f"{spec.path or 'the model'}: no operation has cases for its layers ({kinds})"
        )
    return tuple(found.values())


def _group_cases(group: LayerGroup, common: Params) -> Iterator[Case]:
    if group.kind in ("full", "sliding", "chunked", "encoder_self"):
        yield from _paged(group, common)
    elif group.mla is not None and group.kind in ("mla", "mla_sparse"):
        yield from _latent(group, common)
    elif group.state is not None and group.is_ssm:
        yield from _states(group.state, common)


def _paged(group: LayerGroup, common: Params) -> Iterator[Case]:
    if group.num_heads is None or group.head_size is None:
        return
    size_v = group.head_size_v or group.head_size
    params: Params = {
        **common,
        "heads": group.num_heads,
        "kv_heads": group.num_kv_heads or group.num_heads,
        "head_size": group.head_size,
        "head_size_v": size_v if size_v != group.head_size else 0,
        "softcap": float(group.softcap or 0.0),
        "sinks": group.sinks,
        "alibi": group.alibi,
        "ranges": group.prefix_lm,
    }
    if group.kind == "encoder_self":
        yield _encoder(group, params)
        return
    span = 0
    for name in ("window", "chunk"):
        value = getattr(group, name) or 0
        if name == "chunk" or group.kind == "sliding":
            params[name] = value if value <= LONGEST_SPAN else 0
            span = max(span, int(params[name] or 0))
    for phase in paged_cases.PHASES.values():
        yield paged_cases.case(**params, **phase)
    if span:
        yield paged_cases.case(**params, queries="1+4", contexts=f"{span + 9}+{2 * span + 1}")


def _encoder(group: LayerGroup, params: Params) -> Case:
    """One sequence both ways, longer than a window of two sides where the layer has one."""
    width, right = group.window or 0, group.window_right
    if right is None or not 0 < width <= LONGEST_SPAN:
        return paged_cases.case(**params, causal=False, queries="40", contexts="40")
    tokens = str(width + 40)
    # its own token counts to the left
    sides = {"window": width - right, "window_right": right}
    return paged_cases.case(**params, **sides, causal=False, queries=tokens, contexts=tokens)


def _latent(group: LayerGroup, common: Params) -> Iterator[Case]:
    mla = group.mla
    assert mla is not None
    widths: Params = {
        **common,
        "heads": group.num_heads or 1,
        "lora": mla.kv_lora_rank,
        "rope": mla.qk_rope_head_dim,
        "nope": mla.qk_nope_head_dim,
        "v": mla.v_head_dim,
    }
    phases = paged_cases.PHASES
    if group.kind == "mla":
        for phase in phases.values():
            yield mla_cases.case(**widths, **phase)
        yield mla_cases.case(form="uncompressed", **widths, **phases["chunked"])
        return
    topk = group.indexer.topk if group.indexer else 2048
    for name in ("chunked", "decode"):
        yield mla_sparse_cases.case(**widths, topk=topk, picks="holes", **phases[name])
    if group.indexer is not None:
        heads, width = group.indexer.heads, group.indexer.head_dim
        yield indexer_case(
            **common, index_heads=heads, head_dim=width, topk=topk, **phases["decode"]
        )


def _states(state: State, common: Params) -> Iterator[Case]:
    for op, params in _state_params(state):
        for phase in state_cases.PHASES.values():
            yield state_cases.case(op, **common, **params, **phase)


def _state_params(state: State) -> Iterator[tuple[str, Params]]:
    """The recurrence of a layer by its widths; a width that the file leaves out: no case."""
    if state.type in ("gdn", "kda"):
        kda = state.type == "kda"
        heads = state.num_heads if kda else state.num_v_heads
        width = state.head_dim if kda else state.head_k_dim
        params: dict[str, int | None] = {
            "k_heads": heads if kda else state.num_k_heads,
            "v_heads": heads,
            "head_k_dim": width,
            "head_v_dim": width if kda else state.head_v_dim,
        }
        yield from _whole("gdn", params, kda=kda)
    elif state.type == "mamba1":
        params = {"channels": state.inner, "state_size": state.state_size}
        yield from _whole("mamba1", params)
    elif state.type == "mamba2":
        params = {
            "heads": state.num_heads,
            "head_dim": state.head_dim,
            "groups": state.n_groups,
            "state_size": state.state_size,
        }
        yield from _whole("mamba2", params)
    elif state.type == "short_conv":
        channels = state.conv_state[0] if state.conv_state else state.inner
        yield from _whole("short_conv", {"channels": channels, "width": state.conv_kernel})
    elif state.type in ("linear", "lightning"):
        yield from _whole("linear", {"heads": state.num_heads, "head_dim": state.head_dim})


def _whole(op: str, params: dict[str, int | None], **more: bool) -> Iterator[tuple[str, Params]]:
    known: Params = {name: value for name, value in params.items() if value}
    if len(known) == len(params):
        yield op, {**known, **more}
