"""Finds the vision and audio towers beside a text model; tower.py reads them."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.spec import Tower

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
    "video_config",
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
# names that stand for towers only; others may hold settings of something else
CERTAIN = frozenset({"vision_config", "audio_config"})
VISION_NAMES = ("mm_vision_tower", "vision_tower", "vision_model_id", "vision_model_name_or_path")
AUDIO_NAMES = ("audio_model_id", "audio_tower", "mm_audio_tower", "speech_encoder")


def towers(config: Config) -> tuple[Tower | None, Tower | None]:
    """The vision tower and the audio tower, each None where the file has none."""
    vision = find_tower(config.chain, VISION_KEYS, VISION_NAMES) or inside_encoder(config)
    audio = find_tower(config.chain, AUDIO_KEYS, AUDIO_NAMES)
    return vision, audio or speech_encoder(config)


def inside_encoder(config: Config) -> Tower | None:
    """The tower that T5Gemma 2 keeps inside its encoder's config."""
    encoder = config.root.data.get("encoder")
    if not isinstance(encoder, dict) or "vision_config" not in encoder:
        return None
    return read_under(Keys(encoder, config.root.at("encoder"), config.root.ledger), "vision_config")


def speech_encoder(config: Config) -> Tower | None:
    """The tower of speech models that call it `encoder_config`, beside a text model."""
    root = config.root
    kind = root.model_type or ""
    speaks = len(config.chain) > 1 and ("speech" in kind or "audio" in kind)
    return read_under(root, "encoder_config") if speaks else None


def read_under(keys: Keys, name: str) -> Tower | None:
    """The tower in the object under `name`, or None where there is no such object."""
    from attnctl.model.tower import own_object, read_tower  # only files with towers need them

    inner = own_object(keys, name)
    return None if inner is None else read_tower(inner)


def find_tower(
    levels: Iterable[Keys], objects: tuple[str, ...], names: tuple[str, ...]
) -> Tower | None:
    """The first tower that is stated as an object, else as a name."""
    levels = tuple(levels)
    for keys in levels:
        for name in objects:
            found = read_under(keys, name) if keys.has(name) else None
            if found is not None and (name in CERTAIN or sized(found)):
                return found
    for keys in levels:
        for name in names:
            by_name = first_text(keys, name)
            if by_name:
                return Tower(by_name=by_name, path=keys.at(name))
    return None


def sized(tower: Tower) -> bool:
    """True where the object under an ambiguous name did describe a tower."""
    return tower.layers is not None or tower.by_name is not None


def first_text(keys: Keys, name: str) -> str | None:
    """A string under `name`, or the first string of a list there."""
    value = keys.data.get(name)
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, str) or not value:
        return None
    keys.raw(name)
    return value
