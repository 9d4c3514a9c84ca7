"""The JSON Schema of a document that attnctl reads or writes, from its type."""

from __future__ import annotations

from typing import Any

import msgspec

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(name: str, kind: Any) -> bytes:
    """The schema as indented JSON; name: what the document is, "profile"."""
    (stated,) = (field.default for field in msgspec.structs.fields(kind) if field.name == "schema")
    version = stated.removeprefix("attnctl.") if isinstance(stated, str) else f"{name}/1"
    head = {"$schema": DRAFT, "$id": f"urn:attnctl:{version}", "title": f"attnctl {name}"}
    text = msgspec.json.encode(head | msgspec.json.schema(kind))
    return msgspec.json.format(text, indent=2) + b"\n"
