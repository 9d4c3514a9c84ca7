"""Models made of several parts, none of which generates text: the groups of each part in turn."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from attnctl.exits import InputError
from attnctl.model.encoders import read_encoder
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.pairs import read_part
from attnctl.model.spec import LayerGroup
from attnctl.model.unreadable import NoLayersError, no_layers

Groups = tuple[LayerGroup, ...]


def read(config: Config) -> Groups:
    """Groups of every part that has some, each named by its key path in the notes.

    A part that cannot be read is left out with a remark, unless no other part has groups.
    """
    root = config.root
    groups: list[LayerGroup] = []
    problems: list[InputError] = []
    for part in parts_of(root):
        try:
            groups += named(read_part(part), part.path)
        except NoLayersError:
            continue
        except InputError as error:
            problems.append(error)
    if groups:
        for problem in problems:
            root.note(f"left out: {problem}")
        return tuple(groups)
    if problems:
        raise problems[0]
    return no_layers(config)


def with_own(config: Config) -> Groups:
    """A head of plain attention on a backbone without any."""
    return read_encoder(config.root)


def parts_of(root: Keys) -> Iterator[Keys]:
    """The nested objects that state a model type."""
    for name, value in root.data.items():
        if isinstance(value, dict) and value.get("model_type"):
            yield Keys(value, root.at(name), root.ledger)


def named(groups: Groups, path: str) -> Groups:
    """The groups with the key path of their part, unless an inner part is named already."""
    return tuple(
        group
        if "part" in group.notes
        else msgspec.structs.replace(group, notes=group.notes | {"part": path})
        for group in groups
    )
