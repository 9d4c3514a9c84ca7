"""Finds the text model's keys inside a config, at whatever depth a wrapper put them."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from attnctl.model.keys import Keys

# names under which wrappers keep the text model, in the order in which they are tried
TEXT_KEYS = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "language_model_config",
    "language_model",
    "llm_cfg",
    "text_model",
    "lm_config",
    "text_model_config",
    "vlm_config",
    "transformer_layer_config",
    "llm",
)
DEPTH_LIMIT = 8


class Config(msgspec.Struct, frozen=True):
    """A config.json as families read it.

    root: the whole file; text: the text model's keys (the root itself where nothing is nested);
    chain: every level from the root to the text keys, both included.
    """

    root: Keys
    text: Keys
    chain: tuple[Keys, ...]

    @property
    def model_type(self) -> str | None:
        return self.root.model_type

    def outermost(self, types: Container[str]) -> Keys:
        """The first level, from the root, whose model type is among these; else the root."""
        return next((keys for keys in self.chain if keys.model_type in types), self.root)

    def innermost(self, types: Container[str]) -> Keys:
        """The last level whose model type is among these; else the text keys."""
        return next((keys for keys in reversed(self.chain) if keys.model_type in types), self.text)


def find_text(root: Keys) -> Config:
    """The config with its text keys found; every level keeps its own model type."""
    here = root.of_type(_own_type(root) or _from_architecture(root))
    chain = [here]
    for _ in range(DEPTH_LIMIT):
        name = next((k for k in TEXT_KEYS if isinstance(here.data.get(k), dict)), None)
        if name is None:
            break
        inner = Keys(here.data[name], here.at(name), here.ledger)
        own = _own_type(inner) or _wrapped_type(here) or _from_architecture(inner)
        here = inner.of_type(own)
        chain.append(here)
    return Config(chain[0], here, tuple(chain))


def _own_type(keys: Keys) -> str | None:
    given = keys.text("model_type")
    return given.value if given is not None and given.value else None


def _from_architecture(keys: Keys) -> str | None:
    """The model type that the architecture's name implies; for files without a model_type."""
    given = keys.raw("architectures")
    names = given.value if given is not None and isinstance(given.value, list) else []
    if not names or not isinstance(names[0], str):
        return None
    from attnctl.model.class_defaults import type_of_architecture

    found = type_of_architecture(names[0])
    if found is not None:
        keys.note(f"no model_type: {names[0]} is read as {found}")
    return found


def _wrapped_type(outer: Keys) -> str | None:
    if outer.model_type is None:
        return None
    from attnctl.model.class_defaults import text_type_of

    return text_type_of(outer.model_type)
