"""Vision and audio towers, reported apart from the text model that they feed."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.exits import InputError
from attnctl.model.encoder_types import staged
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.shape import Shape, read_shape
from attnctl.model.spec import Tower
from attnctl.model.stages import read_stages

VISION_KEYS = (
    "vision_config",
    "visual",
    "vision_tower_config",
    "vision_encoder_config",
    "vision_encoder",
    "vision_model",
    "vision_backbone",
    "vit_config",
    "visual_config",
    "visual_tokenizer_config",
    "image_config",
    "img_processor",
    "vision_tower",
)
AUDIO_KEYS = (
    "audio_config",
    "audio_encoder_config",
    "audio_encoder",
    "audio_tower_config",
    "speech_config",
    "speech_encoder_config",
    "whisper_config",
    "multimodal.whisper_model_args.encoder_args",
    "audio_processor.config",
)
VISION_NAMES = ("mm_vision_tower", "vision_tower", "vision_model_id", "vision_model_name_or_path")
AUDIO_NAMES = ("audio_model_id", "audio_tower", "mm_audio_tower", "speech_encoder")
# objects inside a tower's own config that hold the transformer
INNER_KEYS = ("backbone_config", "encoder_config", "vision_config", "asr_config", "params")
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


def towers(config: Config) -> tuple[Tower | None, Tower | None]:
    """The vision tower and the audio tower, each None where the file has none."""
    vision = find_tower(config.chain, VISION_KEYS, VISION_NAMES)
    return vision, find_tower(config.chain, AUDIO_KEYS, AUDIO_NAMES)


def find_tower(
    levels: Iterable[Keys], objects: tuple[str, ...], names: tuple[str, ...]
) -> Tower | None:
    """The first tower that is stated as an object, else as a name."""
    levels = tuple(levels)
    for keys in levels:
        for name in objects:
            inner = own_object(keys, name)
            if inner is not None:
                return read_tower(inner)
    for keys in levels:
        for name in names:
            by_name = first_text(keys, name)
            if by_name:
                return Tower(by_name=by_name, path=keys.at(name))
    return None


def own_object(keys: Keys, name: str) -> Keys | None:
    """The object under `name` with its own model type, or None where it is no object."""
    found = keys.raw(name) if keys.has(name) else None
    if found is None or not isinstance(found.value, dict) or not found.value:
        return None
    stated = found.value.get("model_type")
    return Keys(found.value, found.source, keys.ledger, stated if isinstance(stated, str) else None)


def first_text(keys: Keys, name: str) -> str | None:
    """A string under `name`, or the first string of a list there."""
    value = keys.data.get(name)
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, str) or not value:
        return None
    keys.raw(name)
    return value


def read_tower(keys: Keys, depth: int = 3) -> Tower:
    """What the tower's own object says; sizes that it leaves open stay None."""
    try:
        if staged(keys):
            return staged_tower(keys)
        shape = read_shape(keys)
    except InputError as error:
        keys.note(f"{keys.path}: sizes not read ({error})")
        return Tower(path=keys.path)
    name = next((text for key in NAME_KEYS if (text := named(keys, key))), None)
    if shape.layers is None or shape.num_heads is None:
        inner = next((found for key in INNER_KEYS if (found := own_object(keys, key))), None)
        inner = inner or keyed_by_name(keys)
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


def staged_tower(keys: Keys) -> Tower:
    """A tower in stages: all layers, heads and head size of the last stage."""
    groups = read_stages(keys)
    last = groups[-1]
    return Tower(
        layers=sum(len(group.layers) for group in groups),
        num_heads=last.num_heads,
        head_size=last.head_size,
        path=keys.path,
    )


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
