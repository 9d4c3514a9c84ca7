"""The registration of families: every entry leads to a function, and no type has two homes."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import msgspec

from attnctl.exits import InputError
from attnctl.model import ModelSpec, class_defaults, read_model
from attnctl.model.encoder_types import ENCODERS
from attnctl.model.families import FAMILIES, PACKAGE, PLAIN_TYPES
from attnctl.model.traits import TRAITS


def outcome(model_type: str) -> ModelSpec | str:
    try:
        return read_model({"model_type": model_type})
    except InputError as refused:
        return str(refused)


def test_every_home_is_a_function_of_a_module() -> None:
    """A misspelled entry would only show when its model is read."""
    for home in (*FAMILIES, *ENCODERS):
        module, function = home.split(":")
        assert callable(getattr(import_module(f"{PACKAGE}.{module}"), function)), home


def test_no_model_type_is_served_twice() -> None:
    """Neither by two families, nor by a family and the list of plain types."""
    served = Counter(t for table in (FAMILIES, ENCODERS) for types in table.values() for t in types)
    assert [t for t, times in served.items() if times > 1] == []
    assert PLAIN_TYPES.isdisjoint(served)
    assert PLAIN_TYPES.isdisjoint(TRAITS)


def test_every_known_class_is_read_or_refused_in_one_sentence() -> None:
    """A file of nothing but a model_type stands for what its class assumes."""
    known = class_defaults.known_types()
    assert len(known) > 500
    for model_type in known:
        found = outcome(model_type)
        if isinstance(found, str):
            assert "\n" not in found
        else:
            assert found.groups
            assert msgspec.json.encode(found)


def test_groups_of_one_model_are_in_the_order_that_readers_expect() -> None:
    """Encoder before decoder, attention before states, blocks without a cache last."""
    for model_type in class_defaults.known_types():
        found = outcome(model_type)
        groups = () if isinstance(found, str) else found.groups
        ranks = [
            (g.stack != "encoder", 2 if g.kind == "none" else 1 if g.state is not None else 0)
            for g in groups
        ]
        assert ranks == sorted(ranks), (model_type, [(g.kind, g.stack) for g in groups])
