"""Reads one vision or audio tower: depth, heads and head size in every form in use."""

from __future__ import annotations

from attnctl.exits import InputError
from attnctl.model.encoder_types import staged
from attnctl.model.families import home_of, reader_of
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.shape import Shape, read_shape
from attnctl.model.spec import LayerGroup, Tower
from attnctl.model.stages import read_stages

# objects inside a tower's own config that hold the transformer
INNER_KEYS = (
    "backbone_config",
    "encoder_config",
    "vision_config",
    "visual_model",
    "asr_config",
    "params",
)
# families whose sizes are not where others have them
BY_READER = frozenset({"peculiar:read", "stages:read", "streaming:read"})
# keys that may name a known tower instead of stating its sizes
NAME_KEYS = ("model_name", "architecture", "name", "args.model", "params.model_name", "model_id")

# layers, heads, head size of towers that files give by name only: DeepSeek-VL2 and Janus (SigLIP
# SO400M and Large, as timm publishes them), DeepSeek-OCR (CLIP L), Nemotron VL (RADIO ViT-H)
NAMED = {
    "siglip_so400m_patch14_384": (27, 16, 72),
    "vit_so400m_patch14_siglip_384": (27, 16, 72),
    "siglip_large_patch16_384": (24, 16, 64),
    "siglip_large_patch16_256": (24, 16, 64),
    "clip-l-14-224": (24, 16, 64),
    "vit_huge_patch16_224": (32, 16, 80),
}


def own_object(keys: Keys, name: str) -> Keys | None:
    """The object under `name` with its own model type, or None where it is no object."""
    found = keys.raw(name) if keys.has(name) else None
    if found is None or not isinstance(found.value, dict) or not found.value:
        return None
    stated = found.value.get("model_type")
    return Keys(found.value, found.source, keys.ledger, stated if isinstance(stated, str) else None)


def read_tower(keys: Keys, depth: int = 3) -> Tower:
    """What the tower's own object says; sizes that it leaves open stay None."""
    by_key = keyed_by_name(keys)
    if by_key is not None:
        return read_tower(by_key, depth)
    home = home_of(keys.model_type)
    if home == "unreadable:no_layers" and not any(named(keys, key) for key in NAME_KEYS):
        return Tower(kind="none", path=keys.path)
    try:
        if staged(keys):
            return tower_of_groups(keys, read_stages(keys))
        if home in BY_READER and not keys.has("num_global_layers"):
            return tower_of_groups(keys, reader_of(alone(keys))(alone(keys)))
        shape = read_shape(keys)
    except InputError as error:
        keys.note(f"{keys.path}: sizes not read ({error})")
        return Tower(path=keys.path)
    if (extra := keys.count("num_global_layers")) is not None:  # Llama 3.2 Vision
        keys.note(f"{extra.source}: {extra.value} layers over all tiles follow the tower's own")
    name = next((text for key in NAME_KEYS if (text := named(keys, key))), None)
    if shape.layers is None or shape.num_heads is None:
        inner = next((found for key in INNER_KEYS if (found := own_object(keys, key))), None)
        if inner is not None and depth > 0:
            return read_tower(inner, depth - 1)
    if name in NAMED:
        return complete_by_name(keys, shape, name)
    if shape.layers is None and name is not None:
        return Tower(by_name=name, path=keys.path)
    return tower_of(keys, shape)


def tower_of(keys: Keys, shape: Shape) -> Tower:
    return Tower(
        layers=shape.layers,
        num_heads=shape.num_heads,
        head_size=shape.head_size,
        path=keys.path,
    )


def tower_of_groups(keys: Keys, groups: tuple[LayerGroup, ...]) -> Tower:
    """A tower in several groups: all its layers, heads and head size of the last."""
    seen = [group for group in groups if group.num_heads and group.kind != "cross"]
    own = [group for group in seen if "part" not in group.notes] or seen
    return Tower(
        layers=len({layer for group in own for layer in group.layers}),
        num_heads=own[-1].num_heads,
        head_size=own[-1].head_size,
        path=keys.path,
    )


def alone(keys: Keys) -> Config:
    return Config(keys, keys, (keys,))


def named(keys: Keys, key: str) -> str | None:
    found = keys.raw(key) if keys.has(key) else None
    return found.value if found is not None and isinstance(found.value, str) else None


def keyed_by_name(keys: Keys) -> Keys | None:
    """DeepSeek-OCR's form: an object `width` whose keys are names of towers with their sizes."""
    table = keys.data.get("width")
    if not isinstance(table, dict):
        return None
    for name, sizes in table.items():
        if name in NAMED and isinstance(sizes, dict):
            return Keys(sizes, f"{keys.at('width')}.{name}", keys.ledger)
    return None


def complete_by_name(keys: Keys, shape: Shape, name: str) -> Tower:
    """What the file states, and for the rest what the tower of that name has."""
    layers, heads, size = NAMED[name]
    keys.note(f"{keys.path}: sizes that the file leaves open are those of {name}")
    return Tower(
        layers=shape.layers or layers,
        num_heads=shape.num_heads or heads,
        head_size=shape.head_size or size,
        path=keys.path,
    )
