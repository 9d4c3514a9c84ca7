"""Typed reading of a config dict: aliases, key paths, and a record of every key that was used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from attnctl.exits import InputError

T = TypeVar("T")

COUNT_LIMIT = 2**31  # no head count, width or window of a real model comes near
LAYER_LIMIT = 10_000


class Value(msgspec.Struct, Generic[T], frozen=True):
    """A value and where it came from: a key path, or "default of <model type>"."""

    value: T
    source: str


class Ledger:
    """What one reading of one file has used and remarked; passed along with the keys."""

    __slots__ = ("file", "notes", "used")

    def __init__(self, file: str) -> None:
        self.file = file
        self.used: set[str] = set()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


class Keys:
    """A dict of the file at a key path. A name may be dotted; the first that is not null wins.

    Null, and zero where a count is wanted, mean "not given". A value of the wrong type raises
    InputError with file, key path and what was expected.
    """

    __slots__ = ("data", "ledger", "model_type", "path")

    def __init__(
        self, data: Mapping[str, Any], path: str, ledger: Ledger, model_type: str | None = None
    ) -> None:
        self.data = data
        self.path = path
        self.ledger = ledger
        self.model_type = model_type

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def has(self, *names: str) -> bool:
        """True where one of the names is in the file, null included."""
        return any(found for found, _ in map(self._look, names))

    def raw(self, *names: str) -> Value[Any] | None:
        """The first value that is there and not null, of whatever type."""
        for name in names:
            found, value = self._look(name)
            if not found:
                continue
            self.ledger.used.add(self.at(name))
            if value is not None:
                return Value(value, self.at(name))
        return None

    def count(self, *names: str, limit: int = COUNT_LIMIT) -> Value[int] | None:
        """A positive whole number; zero and null count as not given."""
        for name in names:
            given = self.raw(name)
            if given is not None and (number := self._whole(given, limit)):
                return Value(number, given.source)
        return None

    def whole(self, *names: str) -> Value[int] | None:
        """A whole number, zero included."""
        given = self.raw(*names)
        return None if given is None else Value(self._whole(given, COUNT_LIMIT), given.source)

    def count_or_default(self, *names: str) -> Value[int] | None:
        """A positive whole number; where the file is silent, what the model's class assumes."""
        given = self.count(*names)
        if given is not None or self.has(*names):
            return given
        assumed = self.default(*names)
        if assumed is None or isinstance(assumed.value, bool) or not isinstance(assumed.value, int):
            return None
        return assumed if assumed.value > 0 else None

    def default(self, *names: str) -> Value[Any] | None:
        """What the class of this model type assumes for a key, or None."""
        if self.model_type is None:
            return None
        from attnctl.model.class_defaults import defaults_of

        table = defaults_of(self.model_type)
        for name in names:
            if table.get(name) is not None:
                return Value(table[name], f"default of {self.model_type}")
        return None

    def number(self, *names: str) -> Value[float] | None:
        """A finite number; null counts as not given."""
        given = self.raw(*names)
        if given is None:
            return None
        value = given.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(given, "a number")
        if not -1e18 < value < 1e18:
            raise self.wrong(given, "a finite number")
        return Value(float(value), given.source)

    def flag(self, *names: str) -> Value[bool] | None:
        given = self.raw(*names)
        if given is None:
            return None
        if isinstance(given.value, bool) or given.value in (0, 1):
            return Value(bool(given.value), given.source)
        raise self.wrong(given, "true or false")

    def is_true(self, *names: str) -> bool:
        given = self.flag(*names)
        return given is not None and given.value

    def is_false(self, *names: str) -> bool:
        given = self.flag(*names)
        return given is not None and not given.value

    def text(self, *names: str) -> Value[str] | None:
        given = self.raw(*names)
        if given is None:
            return None
        if not isinstance(given.value, str):
            raise self.wrong(given, "a string")
        return Value(given.value, given.source)

    def items(self, *names: str) -> Value[list[Any]] | None:
        """A list, its entries unread."""
        given = self.raw(*names)
        if given is None:
            return None
        if not isinstance(given.value, list | tuple):
            raise self.wrong(given, "a list")
        return Value(list(given.value), given.source)

    def wholes(self, *names: str) -> Value[tuple[int, ...]] | None:
        """A list of whole numbers, zero included."""
        given = self.items(*names)
        if given is None:
            return None
        entries = self.each(given)
        return Value(tuple(self._whole(entry, COUNT_LIMIT) for entry in entries), given.source)

    def sub(self, *names: str) -> Keys | None:
        """The keys of a nested object, or None where it is absent or null."""
        given = self.raw(*names)
        if given is None:
            return None
        if not isinstance(given.value, dict):
            raise self.wrong(given, "an object")
        return Keys(given.value, given.source, self.ledger, self.model_type)

    def each(self, given: Value[list[Any]]) -> Iterator[Value[Any]]:
        """The entries of a list, each with its own key path."""
        for index, entry in enumerate(given.value):
            yield Value(entry, f"{given.source}[{index}]")

    def of_type(self, model_type: str | None) -> Keys:
        """The same keys, read as another model type (whose class defaults then apply)."""
        return Keys(self.data, self.path, self.ledger, model_type)

    def note(self, text: str) -> None:
        self.ledger.note(text)

    def wrong(self, given: Value[Any], wanted: str) -> InputError:
        shown = shorten(given.value)
        return InputError(f"{self.ledger.file}: {given.source} is {shown}; {wanted} is expected")

    def missing(self, what: str, *names: str) -> InputError:
        """The error of a count that no name gives, or that one of them states as 0."""
        for name in names:
            _, stated = self._look(name)
            if stated == 0 and isinstance(stated, int | float) and not isinstance(stated, bool):
                return self.wrong(Value(stated, self.at(name)), "1 or more")
        where = f" under {self.path}" if self.path else ""
        kind = f"model type {self.model_type!r}" if self.model_type else "a model of no stated type"
        return InputError(
            f"{self.ledger.file}: no {what}{where} for {kind}; give one of {', '.join(names)}"
        )

    def _look(self, name: str) -> tuple[bool, Any]:
        here: Any = self.data
        if name in here:
            return True, here[name]
        if "." not in name:
            return False, None
        for part in name.split("."):
            if not isinstance(here, dict) or part not in here:
                return False, None
            here = here[part]
        return True, here

    def whole_of(self, given: Value[Any]) -> int:
        """The whole number that an entry of a list is, zero included."""
        return self._whole(given, COUNT_LIMIT)

    def _whole(self, given: Value[Any], limit: int) -> int:
        value = given.value
        if isinstance(value, float) and value.is_integer() and abs(value) <= limit:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(given, "a whole number")
        if not 0 <= value <= limit:
            raise self.wrong(given, f"a whole number from 0 to {limit}")
        return value


def shorten(value: object) -> str:
    """The value as JSON would show it, cut to a length that fits in one sentence."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)} entries"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a number of more than 128 bits"  # str() of a huge int raises
    import json

    shown = json.dumps(value) if isinstance(value, str | bool | None) else repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def first(*values: Value[T] | None) -> Value[T] | None:
    """The first value that is given."""
    return next((value for value in values if value is not None), None)


def sources(**values: Value[Any] | None) -> dict[str, str]:
    """Field name -> key path, for the values that are given."""
    return {name: value.source for name, value in values.items() if value is not None}
