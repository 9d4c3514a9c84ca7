"""Hypothesis strategies that damage a JSON document the way editors, tools and disks do."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

WORDS = (
    "",
    "0",
    "-1",
    "8",
    "auto",
    "none",
    "bfloat16",
    "full_attention",
    "é\x00\x1b[31m",
    "a" * 300,
)
NUMBERS = (0, 1, -1, 3, 64, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.integers()
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(("layer_types", "text_config", "name", "x")), inner, max_size=2
        ),
    ),
    max_leaves=5,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a document, outermost first."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield (*path, key)
            yield from places(value, (*path, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield (*path, index)
            yield from places(value, (*path, index))


@st.composite
def damaged(draw: st.DrawFn, documents: list[Any]) -> bytes:
    """One of the documents as bytes, after one to four changes of values, or cut short."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 4))):
        paths = list(places(document))
        if not paths:
            break
        _change(document, draw(st.sampled_from(paths)), draw)
    data = json.dumps(document).encode()
    kind = draw(st.sampled_from(("whole", "whole", "whole", "cut", "flipped")))
    if kind == "cut":
        return data[: draw(st.integers(0, len(data)))]
    if kind == "flipped" and data:
        place = draw(st.integers(0, len(data) - 1))
        return data[:place] + bytes([draw(st.integers(0, 255))]) + data[place + 1 :]
    return data


def _change(document: Any, path: tuple[Any, ...], draw: st.DrawFn) -> None:
    *way, last = path
    for step in way:
        document = document[step]
    change = draw(st.sampled_from(("replace", "replace", "remove", "add")))
    if change == "remove":
        del document[last]
    elif change == "add" and isinstance(document, dict):
        document[draw(st.sampled_from(WORDS))] = draw(JUNK)
    else:
        document[last] = draw(JUNK)
