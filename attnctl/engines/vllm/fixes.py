"""What would make a rejection vanish: every single change is tried, none is guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from attnctl.engines.vllm.environment import AITER, BATCH_INVARIANT
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.findings import Finding

KV_DTYPES = ("auto", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "nvfp4", "int8_per_token_head")
BLOCK_SIZES = (16, 32, 64, 128, 256)
# names of facts that a package brings -> what is installed for them
PACKAGES = {
    "flashinfer": frozenset({"flashinfer", "cute_dsl"}),
    "flashinfer-cubin": frozenset({"flashinfer_cubin", "flashinfer_usable"}),
    "flashinfer 0.6.18 or newer and flashinfer-cubin": frozenset(
        {"flashinfer", "cute_dsl", "flashinfer_cubin", "flashinfer_usable", "flashinfer_sm90_mla"}
    ),
    "tokenspeed_mla": frozenset({"tokenspeed_mla"}),
    "flash_attn": frozenset({"flash_attn"}),
    "b12x": frozenset({"b12x"}),
    "aiter 0.1.20 or newer": frozenset({"aiter", "aiter_causal"}),
}
Trial = tuple[str, Facts, Layer]


def with_fixes(
    reasons: Callable[[Facts, Layer], tuple[Finding, ...]],
    facts: Facts,
    layer: Layer,
    findings: tuple[Finding, ...],
    stated: bool,
) -> tuple[Finding, ...]:
    """The findings, each once and with the one change that removes it, "" where none does alone.

    reasons: why the backend is rejected, all that can be asked, of other facts and layers too.
    stated: the checkpoint states the cache's dtype, so that --kv-cache-dtype auto changes nothing.
    """
    trials = [trial for trial in _trials(facts, layer) if not (stated and trial[0] == AUTO)]
    left = [
        (change, {finding.code for finding in reasons(other, altered)})
        for change, other, altered in trials
    ]
    now = {finding.code for finding in findings}
    fixed = []
    for finding in dict.fromkeys(findings):
        fix = next((change for change, codes in left if _removes(finding.code, now, codes)), "")
        fixed.append(msgspec.structs.replace(finding, fix=fix))
    return tuple(fixed)


def _removes(code: str, now: set[str], then: set[str]) -> bool:
    """Return whether a reason is gone and nothing came in its place."""
    # without its imports nothing else of a backend is looked at, so their return may show more
    return code not in then and (code == "package_missing" or then <= now)


def what_helps(
    facts: Facts, layer: Layer, stated: bool, works: Callable[[Facts, Layer], bool]
) -> str:
    """Return the one change after which vLLM takes a layer that it refuses, "" where none does.

    It ends a sentence. stated: as in `with_fixes`. works: whether vLLM takes a layer.
    """
    for change, other, altered in _trials(facts, layer):
        if not (stated and change == AUTO) and works(other, altered):
            return f"; what helps is: {change}"
    if layer.backend is not None and works(facts, msgspec.structs.replace(layer, backend=None)):
        return "; what helps is: no --backend"
    return ""


AUTO = "--kv-cache-dtype auto"


def _trials(facts: Facts, layer: Layer) -> Iterator[Trial]:
    if layer.block_size is not None:
        yield "no --block-size", facts, msgspec.structs.replace(layer, block_size=None)
        for size in BLOCK_SIZES:
            altered = msgspec.structs.replace(layer, block_size=size)
            yield f"--block-size {size}", facts, altered
    for dtype in _dtypes(facts):
        if dtype != layer.dtype:
            yield f"--dtype {dtype}", facts, msgspec.structs.replace(layer, dtype=dtype)
    for name in (layer.dtype, *KV_DTYPES):
        if name != layer.kv_cache_dtype:
            altered = msgspec.structs.replace(layer, kv_cache_dtype=name)
            yield f"--kv-cache-dtype {name}", facts, altered
    if layer.batch_invariant:
        altered = msgspec.structs.replace(layer, batch_invariant=False)
        yield f"--engine-env {BATCH_INVARIANT}=0", facts, altered
    for package, names in PACKAGES.items():
        yield f"install {package}", _with(facts, names), layer
    if "aiter" in facts.have:
        yield f"--engine-env {AITER}=1", _with(facts, frozenset({"aiter_env"})), layer


def _dtypes(facts: Facts) -> tuple[str, ...]:
    """Dtypes of the device, the one that most backends take first."""
    if facts.platform == "cuda" and facts.capability is not None and facts.capability < (8, 0):
        return ("float16", "float32")
    return ("bfloat16", "float16", "float32")


def _with(facts: Facts, names: frozenset[str]) -> Facts:
    have, unknown = facts.have | names, facts.unknown - names
    return msgspec.structs.replace(facts, have=have, unknown=unknown)
