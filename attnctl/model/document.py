"""Gets a config as a dict out of a file, a directory, standard input or a dict already parsed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from attnctl.arguments import refuse_other
from attnctl.documents.files import SIZE_LIMIT, MissingFileError, read_bytes, reason
from attnctl.documents.json_text import plain, unmarked
from attnctl.exits import InputError

CONFIG = "config.json"
SIDECAR = "hf_quant_config.json"
SIDECAR_KEY = "_sidecar_hf_quant_config.json"

Source = str | os.PathLike[str] | dict[str, Any]


class Document(msgspec.Struct, frozen=True):
    """A parsed config.

    file: its name for messages; path: where it came from; sidecar: hf_quant_config.json where one
    lies beside it; notes: remarks on the JSON itself (repeated keys).
    """

    file: str
    path: str
    data: dict[str, Any]
    sidecar: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


def load(source: Source, stdin: BinaryIO | None = None) -> Document:
    """The document that `source` names. Raises InputError for all that cannot be read."""
    if isinstance(source, dict):
        data = dict(source)
        sidecar = data.pop(SIDECAR_KEY, None)
        return Document(CONFIG, "", data, sidecar if isinstance(sidecar, dict) else None)
    refuse_other("model", source, (str, os.PathLike), "the path of a config.json, or a dict")
    if source == "-":
        return _of_bytes(_piped(stdin), "standard input", "-")
    if source == "":
        raise InputError("the path of the model is empty; name a config.json or its directory")
    path = Path(source)
    file = path / CONFIG if _is(path.is_dir) else path
    document = _of_bytes(_bytes_of(file, path), str(file), str(path))
    beside = file.parent / SIDECAR
    if document.sidecar is not None or not _is(beside.is_file):
        return document
    side = _of_bytes(_bytes_of(beside, beside), str(beside), str(beside))
    notes = (*document.notes, *(f"{SIDECAR}: {note}" for note in side.notes))
    return msgspec.structs.replace(document, sidecar=side.data, notes=notes)


def _is(question: Callable[[], bool]) -> bool:
    """The answer of the file system; no where it may not be asked (opening will say why)."""
    try:
        return question()
    except OSError:
        return False


def _bytes_of(file: Path, asked: Path) -> bytes:
    try:
        return read_bytes(file, CONFIG)
    except MissingFileError:
        if asked != file:
            raise InputError(
                f"{asked} has no {CONFIG}; name a file, or a directory that holds one"
            ) from None
        raise InputError(
            f"{file} does not exist; name a config.json, a directory that holds one, or -"
        ) from None


def _piped(stdin: BinaryIO | None) -> bytes:
    # Python sets no sys.stdin where the file descriptor was closed before it started
    stream = stdin or getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise InputError("standard input is closed; pipe a config.json into it, or name a file")
    try:
        return stream.read(SIZE_LIMIT + 1)
    except (OSError, ValueError) as problem:
        raise InputError(f"standard input cannot be read: {reason(problem)}") from None


def _of_bytes(raw: bytes, file: str, path: str) -> Document:
    if len(raw) > SIZE_LIMIT:
        raise InputError(f"{file} is larger than {SIZE_LIMIT >> 20} MiB; that is no config.json")
    raw = unmarked(raw, file)
    data, twice = plain(raw), False
    if data is None:
        data, twice = _odd(raw, file)
    if not isinstance(data, dict):
        raise InputError(f"{file} holds no JSON object; a config.json is one")
    notes = _notes(raw) if twice else ()
    sidecar = data.pop(SIDECAR_KEY, None)
    return Document(file, path, data, sidecar if isinstance(sidecar, dict) else None, notes)


def _odd(raw: bytes, file: str) -> tuple[object, bool]:
    """What _parsed gives of bytes that are not plain JSON; InputError where they are not text."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as problem:
        raise InputError(
            f"{file} is not UTF-8 text (byte {problem.start}); is it a config.json?"
        ) from None
    return _parsed(text, file)


def _notes(raw: bytes) -> tuple[str, ...]:
    from attnctl.documents.json_keys import repeated_keys

    return tuple(f"{repeated}: the last one counts" for repeated in repeated_keys(raw))


def _parsed(text: str, file: str) -> tuple[object, bool]:
    """The JSON value, and whether some object gives a name more than once."""
    # it takes NaN and says where a fault is; a plain file is read without it, and sooner
    import json

    twice = False

    def one_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        made = dict(pairs)
        twice = twice or len(made) < len(pairs)
        return made

    try:
        data = json.loads(text, object_pairs_hook=one_object)
        if "\\ud" in text.lower():  # an escape may be half a character, which no output can hold
            whole = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")
            data = json.loads(whole)
    except RecursionError:
        raise InputError(f"{file} is nested too deeply to be a config.json") from None
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise InputError(f"{file} is not JSON: {problem.msg} at {where}") from None
    except ValueError:  # a whole number of more digits than Python converts
        raise InputError(
            f"{file} holds a whole number of thousands of digits, which no model has: correct it"
        ) from None
    return data, twice
