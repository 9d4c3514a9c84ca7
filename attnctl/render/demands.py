"""What a group of layers demands, in one short phrase."""

from __future__ import annotations

from attnctl.model.spec import LayerGroup
from attnctl.render.amounts import ranges
from attnctl.selection.latent_forms import LatentForms
from attnctl.selection.report import GroupReport, SelectReport


def titles(report: SelectReport) -> tuple[str, ...]:
    """ "full 0-31" for each group, with the stack where the model has more than one."""
    stacks = {group.layer.stack for group in report.groups}
    names = (f"{group.kind} {ranges(group.layers)}{_part(group.layer)}" for group in report.groups)
    if len(stacks) < 2:
        return tuple(names)
    return tuple(
        f"{group.layer.stack or ''} {name}".strip()
        for group, name in zip(report.groups, names, strict=True)
    )


def _part(layer: LayerGroup) -> str:
    """ " of vision_config" in a model of several parts, whose layer ids start anew in each."""
    part = layer.notes.get("part")
    return f" of {part}" if part else ""


def demands(group: GroupReport) -> str:
    """ "32 heads, 8 KV, head 128, window 4096, sinks, bfloat16", only what is not plain."""
    layer = group.layer
    parts = [*_heads(layer), *_widths(layer), *_features(layer), *_state(layer), group.dtype]
    if group.kv_cache_dtype != "auto" and layer.needs_kv_cache:
        parts.append(f"cache {group.kv_cache_dtype}")
    return ", ".join(parts)


def _heads(layer: LayerGroup) -> list[str]:
    if layer.num_heads is None:
        return []
    heads = [f"{layer.num_heads} heads"]
    if layer.num_kv_heads not in (None, layer.num_heads):
        heads.append(f"{layer.num_kv_heads} KV")
    return heads


def _widths(layer: LayerGroup) -> list[str]:
    if layer.head_size is None:
        return []
    if layer.mla is not None:
        mla = layer.mla
        return [f"latent {mla.kv_lora_rank} + rope {mla.qk_rope_head_dim}"]
    if layer.head_size_v not in (None, layer.head_size):
        return [f"K {layer.head_size}, V {layer.head_size_v}"]
    return [f"head {layer.head_size}"]


def _features(layer: LayerGroup) -> list[str]:
    parts = []
    if layer.window is not None:
        parts.append(f"window {layer.window}{_sides(layer.window, layer.window_right)}")
    if layer.chunk is not None:
        parts.append(f"chunk {layer.chunk}")
    if layer.indexer is not None:
        own = layer.indexer.layers is None or layer.indexer.layers
        parts.append(f"top {layer.indexer.topk} picked {'here' if own else 'in a layer before'}")
    if layer.softcap is not None:
        parts.append(f"softcap {layer.softcap:g}")
    named = {"sinks": layer.sinks, "ALiBi": layer.alibi, "prefix LM": layer.prefix_lm}
    parts += [name for name, there in named.items() if there]
    if layer.kv_shared_from:
        parts.append(f"{len(layer.kv_shared_from)} read another layer's cache")
    return parts


def forms_text(forms: LatentForms, layer: LayerGroup) -> str:
    """ "prefill: uncompressed, heads of K 192 and V 128 made from the cache by ...; decode: ." """
    row = f"absorbed, rows of {forms.row}"
    if forms.indexer_by is not None:
        topk = f" {layer.indexer.topk}" if layer.indexer else ""
        what = f"prefill and decode: {row}, over the{topk} tokens that the indexer picks"
        return f"{what}; indexer: {forms.indexer_by}'s kernels"
    heads = f"heads of K {forms.prefill_head_size} and V {forms.prefill_head_size_v}"
    whose = f"{heads} made from the cache by {forms.prefill_by}'s kernels"
    return f"prefill: {forms.prefill}, {whose}; decode: {row}"


def _state(layer: LayerGroup) -> list[str]:
    if layer.state is None:
        return []
    shapes = {"conv": layer.state.conv_state, "state": layer.state.ssm_state}
    return [f"{name} [{', '.join(map(str, shape))}]" for name, shape in shapes.items() if shape]


def _sides(width: int, right: int | None) -> str:
    """How the whole width of a two-sided window falls to its sides; "" for one side."""
    return "" if right is None else f" ({width - right} left, {right} right)"
