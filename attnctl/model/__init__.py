"""Reads a model's config.json into a ModelSpec: layer groups, each value with its key path."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from attnctl.model.spec import ModelSpec

__all__ = ["ModelSpec", "read_model"]


def read_model(
    source: str | os.PathLike[str] | dict[str, Any], *, stdin: BinaryIO | None = None
) -> ModelSpec:
    """What the config says of attention and state, each value with the key path it came from.

    source: a config.json, a directory that holds one (the sidecar hf_quant_config.json beside it
    is read too), "-" for standard input, or a dict already parsed (its key
    `_sidecar_hf_quant_config.json` plays the sidecar).
    Raises InputError, one sentence with file and key path, for all that cannot be read.
    """
    from attnctl.model.document import load
    from attnctl.model.reading import spec_of

    return spec_of(load(source, stdin))
