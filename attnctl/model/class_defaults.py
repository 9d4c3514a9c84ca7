"""What the configuration class of a model type assumes where a file is silent.

The table beside this module holds the figures that bear on attention and state, per model type, as
the configuration classes of transformers 5.23 state them. It is read on first need only, and what
it says of a type when that type is asked about.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec


class _Table(msgspec.Struct, frozen=True):
    source: str
    text: dict[str, str]
    defaults: dict[str, msgspec.Raw]


@lru_cache(maxsize=1)
def _table() -> _Table:
    data = Path(__file__).with_name("class_defaults.json").read_bytes()
    return msgspec.json.decode(data, type=_Table)


def defaults_of(model_type: str) -> dict[str, Any]:
    """Key -> assumed value; empty for a type that the table lacks."""
    stated = _table().defaults.get(model_type)
    return {} if stated is None else msgspec.json.decode(stated, type=dict[str, Any])


def text_type_of(model_type: str) -> str | None:
    """The model type of the text model inside a wrapper that does not state it."""
    return _table().text.get(model_type)


def known_types() -> tuple[str, ...]:
    """Every model type that the table has figures for."""
    return tuple(_table().defaults)


def is_known(model_type: str) -> bool:
    return model_type in _table().defaults or model_type in _table().text


def type_of_architecture(architecture: str) -> str | None:
    """The model type whose name the architecture starts with ("BertModel" -> "bert")."""
    name = architecture.lower()
    known = (t for t in (*_table().defaults, *_table().text) if _squeezed(t))
    fitting = [t for t in known if name.startswith(_squeezed(t))]
    return max(fitting, key=len, default=None)


def _squeezed(model_type: str) -> str:
    return model_type.replace("_", "").replace("-", "")
