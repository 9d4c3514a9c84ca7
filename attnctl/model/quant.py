"""The KV-cache number format that a quantised checkpoint asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attnctl.model.keys import Keys, Value

_ALGORITHMS = {
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "float8": "fp8",
    "fp8_e5m2": "fp8_e5m2",
    "nvfp4": "nvfp4",
    "int8": "int8",
    "int4": "int4",
}


def kv_cache_dtype(levels: Iterable[Keys], sidecar: Keys | None) -> Value[str] | None:
    """The cache dtype that the checkpoint states, or None where its KV cache is not quantised.

    levels: from the text model outwards; sidecar: hf_quant_config.json of ModelOpt.
    """
    for keys in levels:
        for name in ("quantization_config", "compression_config", "quantization"):
            section = keys.raw(name)
            if section is not None and isinstance(section.value, dict):
                found = _of_section(Keys(section.value, section.source, keys.ledger))
                if found is not None:
                    return found
    if sidecar is None:
        return None
    inner = sidecar.sub("quantization") or sidecar
    return _of_section(inner)


def _of_section(section: Keys) -> Value[str] | None:
    algorithm = section.raw("kv_cache_quant_algo", "quantization.kv_cache_quant_algo")
    if algorithm is not None:
        return _named(section, algorithm)
    scheme = section.raw("kv_cache_scheme")
    if scheme is not None:
        return _of_scheme(section, scheme)
    plain = section.raw("kv_cache_dtype", "kv_cache_quant_method")
    if plain is not None and isinstance(plain.value, str):
        return _named(section, plain)
    return _of_quark(section)


def _named(section: Keys, given: Value[Any]) -> Value[str] | None:
    if not isinstance(given.value, str):
        raise section.wrong(given, 'a name such as "FP8", or null')
    name = given.value.lower()
    if name in ("", "none", "auto"):
        return None
    if name not in _ALGORITHMS:
        section.note(f"{given.source} {given.value!r} is no KV-cache format known here")
        return Value(name, given.source)
    return Value(_ALGORITHMS[name], given.source)


def _of_scheme(section: Keys, scheme: Value[Any]) -> Value[str] | None:
    """compressed-tensors: {num_bits: 8, type: float} is fp8; a bare name is taken as such."""
    if isinstance(scheme.value, str):
        return _named(section, scheme)
    if not isinstance(scheme.value, dict):
        raise section.wrong(scheme, "an object or null")
    keys = Keys(scheme.value, scheme.source, section.ledger)
    bits, kind = keys.count("num_bits"), keys.text("type")
    if bits is None:
        return None
    prefix = "int" if kind is not None and kind.value == "int" else "fp"
    return Value(f"{prefix}{bits.value}", scheme.source)


def _of_quark(section: Keys) -> Value[str] | None:
    """Quark says the formats of layers' outputs, and which of these outputs go to the cache.

    Newer files hold the layers of the cache in a dict of their own.
    """
    own = section.raw("kv_cache_quant_config")
    if own is not None and _puts_out_fp8(own.value):
        return Value("fp8", own.source)
    listed = section.raw("export.kv_cache_group")
    if listed is None or not listed.value:
        return None
    layers = section.raw("layer_quant_config")
    if layers is not None and _puts_out_fp8(layers.value):
        return Value("fp8", listed.source)
    return None


def _puts_out_fp8(layers: object) -> bool:
    """True where one of the layers of this dict has an output in fp8."""
    for entry in layers.values() if isinstance(layers, dict) else ():
        output = entry.get("output_tensors") if isinstance(entry, dict) else None
        dtype = output.get("dtype") if isinstance(output, dict) else None
        if isinstance(dtype, str) and "fp8" in dtype.lower():
            return True
    return False
