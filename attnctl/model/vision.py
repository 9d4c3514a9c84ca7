"""Vision and audio towers beside a text model, reported apart from it."""

from __future__ import annotations

from attnctl.exits import InputError
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.spec import Tower

_VISION = ("vision_config", "vit_config", "visual", "vision_tower_config")
_AUDIO = ("audio_config", "audio_encoder_config")
_LAYERS = (
    "num_hidden_layers",
    "depth",
    "layers",
    "encoder_layers",
    "vt_num_hidden_layers",
    "num_layers",
)
_HEADS = ("num_attention_heads", "num_heads", "heads", "attention_heads", "encoder_attention_heads",
          "vt_num_attention_heads")  # fmt: skip
_WIDTH = ("embed_dim", "hidden_size", "width", "d_model", "vt_hidden_size")


def towers(config: Config) -> tuple[Tower | None, Tower | None]:
    """The vision tower and the audio tower, each None where the file has none."""
    return _found(config, _VISION) or _named(config.root), _found(config, _AUDIO)


def _found(config: Config, names: tuple[str, ...]) -> Tower | None:
    for level in config.chain:
        section = level.raw(*names)
        if section is not None and isinstance(section.value, dict):
            return _tower(Keys(section.value, section.source, level.ledger))
    return None


def _tower(keys: Keys) -> Tower | None:
    try:
        layers, heads, width = keys.count(*_LAYERS), keys.count(*_HEADS), keys.count(*_WIDTH)
        size = keys.count("head_dim")
    except InputError as problem:
        keys.note(f"tower not read: {problem}")
        return None
    if heads is None and width is not None:
        return Tower(layers=layers.value if layers else None, path=keys.path)
    derived = width.value // heads.value if width and heads else None
    return Tower(
        layers=layers.value if layers else None,
        num_heads=heads.value if heads else None,
        head_size=size.value if size else derived,
        path=keys.path,
    )


def _named(root: Keys) -> Tower | None:
    given = root.raw("mm_vision_tower")
    if given is None or not isinstance(given.value, str):
        return None
    return Tower(by_name=given.value, path=given.source)
