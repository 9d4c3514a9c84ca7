"""Field reports about probing: masks, tiles, a probe that starts nothing, and Triton's tools."""

from __future__ import annotations

import pytest

from attnctl.machine import Gpu
from attnctl.probe import isa
from attnctl.probe.code_objects import device_code_finding
from attnctl.probe.toolchain import Toolchain, triton_usable
from attnctl.probe.visibility import amd_visible, cuda_visible
from tests.shared_cases.reports import report


@pytest.mark.parametrize("at", range(7))
def test_masks_of_cuda_show_what_the_report_says(at: int) -> None:
    """B03: instances, UUIDs, prefixes, nothing, another order, an end in the middle."""
    case = report("B03")
    given, wanted = case["input"], case["expected"]["visible_physical"]
    assert len(given["env"]) == len(wanted) == 7
    instances = [(text.split(" on ")[0], int(text.split(" on ")[1])) for text in given["mig"]]
    visible = cuda_visible({"CUDA_VISIBLE_DEVICES": given["env"][at]}, given["gpus"], instances)
    if isinstance(wanted[at], str):
        assert wanted[at] in visible.findings[0].found
        return
    shown = [f"{e.physical}:MIG" if e.part else e.physical for e in visible.entries]
    assert shown == wanted[at]
    assert all(finding.code == "visibility.cuda.invalid" for finding in visible.findings)


@pytest.mark.parametrize("at", range(4))
def test_masks_of_amd_filter_one_after_the_other(at: int) -> None:
    """B04: ROCR first, then HIP or CUDA over what is left; a conflict is named."""
    case = report("B04")
    given, wanted = case["input"], case["expected"]["visible_count"]
    assert len(given["env"]) == len(wanted) == 4
    visible = amd_visible(given["env"][at], [None] * given["physical_gpus"])
    codes = [finding.code for finding in visible.findings]
    if wanted[at] == "conflict warning":
        assert codes == ["visibility.amd.conflict"]
        return
    assert len(visible.entries) == wanted[at]
    assert ("visibility.amd.double_mask" in codes) is (wanted[at] == 0)


@pytest.mark.parametrize("at", range(4))
def test_tiles_need_flags_permission_and_a_palette(at: int) -> None:
    """B10: never the name of the model; AVX-512 is decided apart."""
    case = report("B10")
    fake, wanted = case["input"]["fake"][at], case["expected"]
    answer = isa.Amx(fake.get("arch_prctl_xtiledata", ""), fake.get("cpuid_1d_palettes"))
    if answer.palettes is None and answer.permission == "ok":
        raise AssertionError("the report has a permission without palettes")
    found = isa.x86(fake["flags"], answer)
    assert ("amx_bf16" in found.usable) is wanted["amx_usable"][at]
    assert ("avx512f" in found.usable) is wanted["avx512_usable"][at]
    advertised = any(flag.startswith("amx") for flag in fake["flags"])
    assert bool(found.unusable) is (advertised and not wanted["amx_usable"][at])


@pytest.mark.parametrize("at", range(2))
def test_triton_is_unusable_without_its_tools(at: int) -> None:
    """B12: an assembler that is too old; no compiler and no headers."""
    case = report("B12")
    given, wanted = case["input"]["toolchain"][at], case["expected"]
    major, minor = given["capability"]
    gpu = Gpu(index=0, arch=f"sm_{major}{minor}", capability=(major, minor))
    tools = Toolchain(
        cc=(given["cc"] or "") if "cc" in given else "/usr/bin/gcc",
        python_headers=given.get("python_headers", True),
        ptxas=given.get("triton_ptxas"),
        cache_warm=given.get("triton_cache_warm", False),
    )
    usable, findings = triton_usable(gpu, tools)
    assert usable is wanted["triton_usable"][at]
    (finding,) = [finding for finding in findings if not finding.met]
    # the report joins what was found and what helps with a semicolon
    assert finding.found in wanted["finding"][at].replace("ptxas cannot", "ptxas 12.8 cannot")
    assert at == 1 or finding.fix.startswith("point TRITON_PTXAS_PATH at")


def test_a_package_without_code_for_the_gpu_is_named() -> None:
    """B12: the third fact beside compiler and assembler; nothing is said against Triton."""
    case = report("B12")
    given, wanted = case["input"]["toolchain"][2], case["expected"]
    arches = frozenset(given["so_code_objects"])
    finding = device_code_finding("aiter", given["gfx"], arches)
    assert not finding.met
    assert finding.found.startswith(f"the {wanted['finding'][2]}")
    gpu = Gpu(index=0, arch=given["gfx"])
    tools = Toolchain(cc="/usr/bin/gcc", python_headers=True)
    assert triton_usable(gpu, tools)[0] is wanted["triton_usable"][2]
