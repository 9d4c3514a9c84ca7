"""The table of models that are no plain decoder agrees with the modules that read them."""

from __future__ import annotations

from importlib import import_module

import pytest

from attnctl.model.detection import DETECTORS
from attnctl.model.encoder_types import ENCODERS
from attnctl.model.families import FAMILIES
from attnctl.model.pairs import PAIRS
from attnctl.model.peculiar import PECULIAR
from attnctl.model.unreadable import OTHER_MATHEMATICS


@pytest.mark.parametrize("home", [*ENCODERS, *FAMILIES])
def test_every_home_is_a_function_that_exists(home: str) -> None:
    """ "module:function" can be imported and called."""
    module, function = home.split(":")
    assert callable(getattr(import_module(f"attnctl.model.{module}"), function))


def test_no_model_type_is_listed_twice() -> None:
    """Of two entries one would never be used."""
    listed = [kind for table in (ENCODERS, FAMILIES) for kinds in table.values() for kind in kinds]
    assert sorted(listed) == sorted(set(listed))


def test_the_tables_inside_the_modules_serve_what_is_listed() -> None:
    """A type that is listed and not served would be a KeyError on a user's screen."""
    assert ENCODERS["detection:read"] == DETECTORS.keys() | {"maskformer"}
    assert ENCODERS["peculiar:read"] == PECULIAR.keys()
    assert ENCODERS["pairs:read"] == PAIRS.keys() | {"rag"}
    assert ENCODERS["unreadable:other_mathematics"] == OTHER_MATHEMATICS.keys()
