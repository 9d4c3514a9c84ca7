"""The option that a reason offers makes that reason go away, whatever the checkpoint says."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from attnctl.layer import Layer, Options, layer_of
from attnctl.machine import Machine
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.registry import load
from attnctl.select import select, subject_of
from tests import machine_factory as box
from tests.layer_factory import BY_OP, candidate, group

REGISTRY = load()
FIELDS = {
    "--kv-cache-dtype": ("kv_cache_dtype", str),
    "--dtype": ("dtype", str),
    "--block-size": ("block_size", int),
    "--tp": ("tp", int),
}
MACHINES = (
    *(box.cuda(*cc) for cc in ((7, 5), (8, 6), (9, 0), (10, 0))),
    box.cuda(9, packages=("torch", "triton", "flashinfer", "flash_attn")),
    box.rocm(),
    box.cpu(),
)
OPS = ("paged", "diffkv", "mla", "mla_sparse", "gdn")
LAYERS = (*(BY_OP[op] for op in OPS), group(head_size=512), group(sinks=True))
STATED = (None, "fp8", "nvfp4")
"""What a checkpoint says of its own cache."""

CHOSEN = (
    *(Options(kv_cache_dtype=name) for name in ("auto", "float32", "fp8_e5m2", "fp8_ds_mla")),
    Options(dtype="float32"),
    Options(dtype="float16", kv_cache_dtype="fp8"),
    Options(block_size=24),
    Options(block_size=16, kv_cache_dtype="fp8"),
    Options(tp=3),
    Options(tp=48),
)


def cases() -> Iterator[tuple[ModelSpec, LayerGroup, Options]]:
    for layers in LAYERS:
        for stated in STATED:
            spec = ModelSpec(
                model_type="invented",
                groups=(layers,),
                dtype="bfloat16",
                kv_cache_dtype_from_checkpoint=stated,
                kv_cache_dtype_source="quantization_config",
            )
            for options in CHOSEN:
                yield spec, layers, options


def applied(fix: str, options: Options) -> Options | None:
    """The options with the fix in them; None for a fix that is no option."""
    option, _, rest = fix.partition(" ")
    if option not in FIELDS or not rest:
        return None
    field, read = FIELDS[option]
    return msgspec.structs.replace(options, **{field: read(rest.split(",")[0].split()[0])})


def refusals(name: str, layer: Layer, machine: Machine) -> set[str]:
    """Codes that are not met of one backend."""
    backend = REGISTRY.get(name)
    assert backend is not None
    subject = subject_of(machine, layer)
    asked = (rule.check(subject) for rule in backend.rules)
    return {finding.code for finding in asked if finding is not None and not finding.met}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine.name))
def test_an_option_offered_as_a_fix_removes_the_reason(machine: Machine) -> None:
    """Each backend, each reason: with the option that it names, the reason is gone."""
    seen = set()
    for spec, layers, options in cases():
        decision = select(layer_of(spec, layers, options), machine, REGISTRY, options)
        for one in decision.candidates:
            for reason in one.reasons:
                changed = applied(reason.fix, options)
                key = (one.name, reason, layers.kind, spec.kv_cache_dtype_from_checkpoint)
                if changed is None or key in seen:
                    continue
                seen.add(key)
                left = refusals(one.name, layer_of(spec, layers, changed), machine)
                assert reason.code not in left, (one.name, options, key)
    assert len(seen) > 10


def test_a_checkpoint_that_quantises_its_cache_is_told_to_name_the_compute_dtype() -> None:
    """`auto` would keep the checkpoint's FP8, which this GPU cannot convert."""
    spec = ModelSpec(
        model_type="invented",
        groups=(group(),),
        dtype="float16",
        kv_cache_dtype_from_checkpoint="fp8",
        kv_cache_dtype_source="quantization_config.kv_cache_scheme",
    )
    options = Options()
    decision = select(layer_of(spec, group(), options), box.cuda(7, 5), REGISTRY, options)
    fixes = {f.code: f.fix for f in candidate(decision, "TRITON_ATTN").reasons}
    assert fixes == {"fp8_hardware": "--kv-cache-dtype float16"}
