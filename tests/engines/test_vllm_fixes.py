"""What vLLM's rejections found, and the flags that remove them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from attnctl.engines import vllm
from attnctl.findings import Finding
from attnctl.layer import Options
from attnctl.machine import Machine, Package
from attnctl.model.spec import LayerGroup, ModelSpec
from tests.engines.invented import FULL, SPARSE, amd, intel, nvidia, processor

SINKS = msgspec.structs.replace(FULL, head_size=64, sinks=True)
DENSE = msgspec.structs.replace(SPARSE, kind="mla", indexer=None)
PAIR = msgspec.structs.replace(FULL, head_size=192, head_size_v=128)
GROUPS = (FULL, SINKS, PAIR, DENSE, SPARSE, msgspec.structs.replace(FULL, prefix_lm=True))
MACHINES = (
    nvidia((7, 5)),
    nvidia((8, 0), "flashinfer"),
    nvidia((9, 0), "flashinfer", "flashinfer_cubin"),
    nvidia((10, 0)),
    nvidia((12, 0), "flashinfer"),
    amd("gfx942", "aiter", "flash_attn"),
    amd("gfx1100"),
)
RUNS = (
    Options(),
    Options(kv_cache_dtype="fp8"),
    Options(kv_cache_dtype="fp8_e5m2", block_size=16),
    Options(dtype="float32"),
    Options(block_size=48),
)
STATED = (None, "fp8_e4m3", "fp8_e5m2")


def spec_of(group: LayerGroup, stated: str | None) -> ModelSpec:
    return ModelSpec(
        model_type="invented",
        groups=(group,),
        dtype="bfloat16",
        kv_cache_dtype_from_checkpoint=stated,
    )


def reason(machine: Machine, group: LayerGroup, name: str, code: str) -> Finding:
    found = vllm.explain(machine, group, Options(), spec_of(group, None))
    return next(one for one in found.rejected[name] if one.code == code)


def changed(
    fix: str, machine: Machine, options: Options
) -> tuple[Machine, Options, dict[str, str]] | None:
    """Machine, options and environment after a fix has been applied."""
    flag, _, value = fix.partition(" ")
    if flag == "--engine-env":
        return machine, options, dict([value.split("=")])
    if fix == "no --block-size":
        return machine, msgspec.structs.replace(options, block_size=None), {}
    if flag == "install":
        names = [word.replace("-", "_") for word in value.split(" and ")]
        there = {name.split(" ")[0]: Package(status="assumed", source="x") for name in names}
        packages = {**machine.packages, **there}
        return msgspec.structs.replace(machine, packages=packages), options, {}
    field = flag.removeprefix("--").replace("-", "_")
    word: str | int = int(value) if field == "block_size" else value
    return machine, msgspec.structs.replace(options, **{field: word}), {}


def every_fix(
    machine: Machine, stated: str | None
) -> Iterator[tuple[LayerGroup, Options, str, Finding]]:
    for group in GROUPS:
        for options in RUNS:
            found = vllm.explain(machine, group, options, spec_of(group, stated))
            for name, reasons in found.rejected.items():
                yield from ((group, options, name, one) for one in reasons if one.fix)


@pytest.mark.parametrize("stated", STATED)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.gpus[0].arch)
def test_a_fix_that_is_applied_removes_its_reason(machine: Machine, stated: str | None) -> None:
    """Each flag, package and variable is tried; the reason that named it is gone afterwards."""
    tried = 0
    for group, options, name, one in every_fix(machine, stated):
        after = changed(one.fix, machine, options)
        assert after is not None
        box, told, environment = after
        again = vllm.explain(box, group, told, spec_of(group, stated), environment=environment)
        left = {other.code for other in again.rejected.get(name, ())}
        assert one.code not in left, (group.kind, options, name, one)
        tried += 1
    assert tried > 5


@pytest.mark.parametrize(
    ("machine", "group", "name", "code", "found"),
    [
        (
            *(nvidia((8, 0)), SINKS, "FLASH_ATTN", "sinks"),
            "FlashAttention 2 on compute capability 8.0",
        ),
        (
            *(nvidia((9, 0), "flashinfer"), SINKS, "FLASHINFER", "sinks"),
            "no cubins on compute capability 9.0",
        ),
        (nvidia((9, 0)), SINKS, "FLEX_ATTENTION", "sinks", "attention sinks"),
        (
            *(nvidia((8, 0)), DENSE, "FLASH_ATTN_MLA", "kernel_missing"),
            "compute capability 8.0",
        ),
        (
            *(nvidia((9, 0)), msgspec.structs.replace(FULL, prefix_lm=True)),
            *("FLASH_ATTN", "mm_prefix"),
            "FlashAttention 3 on compute capability 9.0, head size 256",
        ),
    ],
)
def test_the_found_side_says_what_is_there(
    machine: Machine, group: LayerGroup, name: str, code: str, found: str
) -> None:
    """A rule about the device or its packages answers with them, not with the layer's demand."""
    assert reason(machine, group, name, code).found == found


def test_a_missing_cubin_package_is_named_as_the_fix() -> None:
    """FlashInfer's sinks on 9.0 want its pre-built kernels, and nothing else."""
    machine = nvidia((9, 0), "flashinfer")
    assert reason(machine, SINKS, "FLASHINFER", "sinks").fix == "install flashinfer-cubin"


def test_a_device_that_is_too_old_has_no_fix() -> None:
    """No flag makes another GPU of it."""
    assert reason(nvidia((8, 0)), SINKS, "FLASH_ATTN", "sinks").fix == ""
    assert reason(nvidia((7, 5)), FULL, "FLASH_ATTN", "compute_capability").fix == ""
    assert reason(nvidia((8, 0)), PAIR, "FLASH_ATTN_DIFFKV", "kernel_missing").fix == ""


def test_a_quantised_checkpoint_is_not_told_to_take_auto() -> None:
    """Auto is what the checkpoint states, so the compute dtype is named."""
    found = vllm.explain(nvidia((8, 0)), FULL, Options(), spec_of(FULL, "fp8_e4m3"))
    (why,) = (one for one in found.rejected["FLASH_ATTN"] if one.code == "kv_cache_dtype")
    assert why.fix == "--kv-cache-dtype bfloat16"


def test_a_forced_backend_is_refused_with_its_fixes() -> None:
    """The reasons of a forced backend carry what would change them as well."""
    told = Options(backend=(("*", "FLASH_ATTN"),), kv_cache_dtype="fp8_e5m2")
    found = vllm.explain(nvidia((9, 0)), FULL, told, spec_of(FULL, None))
    assert [one.fix for one in found.forced] == ["--kv-cache-dtype bfloat16"]


def test_a_latent_layer_without_prefill_is_refused() -> None:
    """vLLM decodes such a layer and raises at start: the decision is the error, and no flags."""
    machine = amd("gfx1100")
    found = vllm.explain(machine, DENSE, Options(), spec_of(DENSE, None))
    assert (found.pick, found.flags, found.mla_prefill) == (None, {}, None)
    assert str(found.error).startswith("ValueError: no prefill backend takes latent widths")
    assert "TRITON_MLA would only decode" in str(found.error)
    assert str(found.error).endswith("what helps is: install flash_attn")
    there = amd("gfx1100", "flash_attn")
    assert vllm.explain(there, DENSE, Options(), spec_of(DENSE, None)).pick == "TRITON_MLA"
    plan = vllm.hybrid_plan(machine, spec_of(DENSE, None), Options())
    assert plan.error == found.error


def test_platforms_with_their_own_prefill_are_not_refused() -> None:
    """The processor and XPU prefill any width."""
    for machine in (processor("avx2"), intel()):
        assert vllm.explain(machine, DENSE, Options(), spec_of(DENSE, None)).error is None


@pytest.mark.parametrize(
    ("machine", "group", "options", "helps"),
    [
        (processor("avx2"), FULL, Options(kv_cache_dtype="fp8"), "--kv-cache-dtype bfloat16"),
        (nvidia((8, 0)), DENSE, Options(dtype="float32"), "--dtype bfloat16"),
        (nvidia((7, 5)), DENSE, Options(dtype="float32"), "--dtype float16"),
        (intel(), FULL, Options(backend=(("*", "FLASHINFER"),)), "no --backend"),
        (nvidia((8, 0)), DENSE, Options(backend=(("*", "FLASHMLA"),)), "no --backend"),
        (
            *(nvidia((9, 0)), DENSE),
            *(Options(backend=(("*", "FLASHMLA"),), block_size=16), "no --block-size"),
        ),
    ],
)
def test_a_refusal_ends_with_the_change_after_which_it_is_taken_back(
    machine: Machine, group: LayerGroup, options: Options, helps: str
) -> None:
    """One change of the command line, tried; with it the same layer has a pick."""
    found = vllm.explain(machine, group, options, spec_of(group, None))
    assert str(found.error).endswith(f"; what helps is: {helps}")
    if helps == "no --backend":
        told = msgspec.structs.replace(options, backend=())
    else:
        after = changed(helps, machine, options)
        assert after is not None
        told = after[1]
    assert vllm.explain(machine, group, told, spec_of(group, None)).error is None


def test_a_refusal_that_no_single_change_takes_back_says_no_more() -> None:
    """Sparse latent attention on a processor: nothing helps."""
    found = vllm.explain(processor("avx2"), SPARSE, Options(), spec_of(SPARSE, None))
    assert found.error == "NotImplementedError: no CPU backend takes sparse latent attention"
