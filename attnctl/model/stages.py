"""Backbones in stages (Swin, PVT, SegFormer, Hiera, ...): a group for each head count and size.

Such configs give depth, heads and width as lists with one entry per stage; some give one width
that grows by a factor from stage to stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from attnctl.model.keys import COUNT_LIMIT, LAYER_LIMIT, Keys, Value
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup

DEPTHS = ("depths", "depth", "blocks_per_stage")
HEADS = ("num_attention_heads_per_stage", "num_attention_heads", "num_heads")
WIDTHS = ("hidden_sizes", "embed_dim_per_stage", "embed_dims", "embed_dim")
FIRST_WIDTHS = ("patch_embeds_hidden_size", "embed_dim")
# transformer blocks per stage that MobileViT's modelling code fixes
FIXED_DEPTHS = {"mobilevit": (2, 4, 3)}
DEFAULT_GROWTH = 2.0  # Swin and its relatives double the width from stage to stage


def per_stage(keys: Keys, *names: str) -> Value[tuple[int, ...]] | None:
    """The first of `names` that is a list of whole numbers, in the file or as class default."""
    for name in names:
        if isinstance(keys.data.get(name), list):
            return keys.wholes(name)
    assumed = keys.default(*(name for name in names if name not in keys.data))
    if assumed is None or not isinstance(assumed.value, list):
        return None
    return Value(tuple(assumed.value), assumed.source)


def read(config: Config) -> tuple[LayerGroup, ...]:
    return read_stages(config.text)


def read_stages(keys: Keys) -> tuple[LayerGroup, ...]:
    """One encoder_self group per (heads, head size); layer ids run on through the stages."""
    depths = stage_depths(keys)
    heads = per_stage(keys, *HEADS)
    head_counts = heads.value if heads else one_head_count(keys, len(depths))
    sizes, sizes_at = head_sizes(keys, head_counts)
    values = value_sizes(keys, sizes)
    if not len(depths) == len(head_counts) == len(sizes) == len(values):
        raise keys.missing("equally long lists of depths, heads and widths", *DEPTHS[:1], *WIDTHS)
    starts = [0, *accumulate(depths)]
    if starts[-1] > LAYER_LIMIT:
        raise keys.missing(f"list of depths that sums to at most {LAYER_LIMIT} layers", *DEPTHS)
    members: dict[tuple[int, int, int], list[int]] = {}
    for stage, shape in enumerate(zip(head_counts, sizes, values, strict=True)):
        members.setdefault(shape, []).extend(range(starts[stage], starts[stage + 1]))
    notes = {"window_2d": window} if (window := window_of(keys)) else {}
    return tuple(
        LayerGroup(
            kind="encoder_self",
            layers=tuple(layers),
            head_size=size,
            head_size_v=None if size_v == size else size_v,
            num_heads=count,
            num_kv_heads=count,
            notes=notes,
            sources={"num_heads": heads.source if heads else "", "head_size": sizes_at},
        )
        for (count, size, size_v), layers in members.items()
    )


def stage_depths(keys: Keys) -> Sequence[int]:
    if keys.model_type in FIXED_DEPTHS:
        return FIXED_DEPTHS[keys.model_type]
    depths = per_stage(keys, *DEPTHS)
    if depths is None:
        raise keys.missing("list of depths per stage", *DEPTHS)
    return depths.value


def one_head_count(keys: Keys, stages: int) -> tuple[int, ...]:
    heads = keys.count_or_default("num_attention_heads", "num_heads")
    if heads is None:
        raise keys.missing("number of attention heads", *HEADS[1:])
    return (heads.value,) * stages


def head_sizes(keys: Keys, heads: Sequence[int]) -> tuple[tuple[int, ...], str]:
    """Head size per stage, and the key path it came from."""
    stated = per_stage(keys, "key_dim")  # LeViT
    if stated is not None:
        return stated.value, stated.source
    widths = per_stage(keys, *WIDTHS)
    if widths is None:
        widths = grown_widths(keys, len(heads))
    pairs = zip(widths.value, heads, strict=False)
    return tuple(width // count if count else 0 for width, count in pairs), widths.source


def grown_widths(keys: Keys, stages: int) -> Value[tuple[int, ...]]:
    first = keys.count_or_default(*FIRST_WIDTHS)
    if first is None:
        raise keys.missing("list of widths per stage", *WIDTHS)
    # Swin2SR keeps one width throughout
    default = 1.0 if keys.model_type == "swin2sr" else DEFAULT_GROWTH
    growth = keys.number("embed_dim_multiplier")
    factor = default if growth is None else growth.value
    grown: list[int] = []
    for stage in range(stages):
        width = first.value * factor**stage
        if not 0 <= width <= COUNT_LIMIT:
            wanted = f"what grows to a width from 0 to {COUNT_LIMIT} in {stages} stages"
            raise keys.wrong(growth or first, wanted)
        grown.append(int(width))
    return Value(tuple(grown), first.source)


def value_sizes(keys: Keys, sizes: Sequence[int]) -> tuple[int, ...]:
    """V widths: those of K, but for LeViT's attention_ratio."""
    levit = keys.model_type == "levit" or keys.has("key_dim")
    ratios = per_stage(keys, "attention_ratio") if levit else None
    if ratios is None:
        return tuple(sizes)
    return tuple(ratio * size for ratio, size in zip(ratios.value, sizes, strict=False))


def window_of(keys: Keys) -> int | None:
    """Side of the square windows of tokens, for the families that state one."""
    side = keys.data.get("window_size")
    given = keys.count("window_size") if isinstance(side, int) else None
    return None if given is None else given.value
