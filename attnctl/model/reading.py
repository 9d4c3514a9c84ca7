"""From a parsed document to a ModelSpec: the steps that every family shares."""

from __future__ import annotations

from attnctl.exits import InputError
from attnctl.model import coverage, dtype, quant, vision
from attnctl.model.attention import max_position_of
from attnctl.model.document import SIDECAR, Document
from attnctl.model.encoder_length import encoder_length_of
from attnctl.model.families import reader_of
from attnctl.model.flags import with_sources
from attnctl.model.keys import Keys, Ledger
from attnctl.model.nesting import find_text
from attnctl.model.prefix import with_prefixes
from attnctl.model.spec import ModelSpec


def spec_of(document: Document) -> ModelSpec:
    """The spec of one document. Raises InputError where a key that matters makes no sense."""
    ledger = Ledger(document.file)
    for text in document.notes:
        ledger.note(text)
    try:
        return _read(document, ledger)
    except RecursionError:
        raise InputError(f"{document.file} is nested too deeply to be a config.json") from None


def _read(document: Document, ledger: Ledger) -> ModelSpec:
    config = find_text(Keys(document.data, "", ledger))
    groups = with_prefixes(config, reader_of(config)(config))
    sidecar = Keys(document.sidecar, SIDECAR, ledger) if document.sidecar else None
    precision = dtype.model_dtype(config.chain)
    cache = quant.kv_cache_dtype(reversed(config.chain), sidecar)
    longest = max_position_of(config.text)
    across = encoder_length_of(config.text)
    seen, heard = vision.towers(config)
    names = config.root.raw("architectures")
    sorted_keys = coverage.sort_keys(document.data, ledger.used)
    return ModelSpec(
        model_type=config.root.model_type,
        architecture=_first_name(names.value) if names else None,
        path=document.path,
        text_config_path=config.text.path,
        groups=with_sources(groups, sorted_keys.used, config.text.model_type),
        dtype=precision.value if precision else None,
        dtype_source=precision.source if precision else "",
        kv_cache_dtype_from_checkpoint=cache.value if cache else None,
        kv_cache_dtype_source=cache.source if cache else "",
        max_position=longest.value if longest else None,
        max_encoder_position=across.value if across else None,
        vision=seen,
        audio=heard,
        notes=tuple(ledger.notes),
        used=sorted_keys.used,
        ignored=sorted_keys.ignored,
        unknown=sorted_keys.unknown,
    )


def _first_name(names: object) -> str | None:
    first = names[0] if isinstance(names, list) and names else None
    return first if isinstance(first, str) else None
