"""Field reports about GPUs that tools could not describe, given to the probe as machines."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.machine import Cpu, Machine, Vendor
from attnctl.probe.cuda import probe_nvidia
from attnctl.probe.host import HostError
from attnctl.probe.pci import DEVICES, scan
from attnctl.probe.rocm import probe_amd
from attnctl.probe.tape import Replay
from tests.shared_cases.reports import report

NVIDIA_BUS = "0000:01:00.0"


def platform(**vendors: Vendor) -> str:
    return Machine(name="test", cpu=Cpu(), **vendors).platform


def value(answer: Any) -> dict[str, Any]:
    return {"value": answer}


def test_gb10_has_the_memory_of_the_machine() -> None:
    """B01: NVML refuses to count, /proc/meminfo does not."""
    case = report("B01")
    fake, wanted = case["input"]["fake"], case["expected"]["memory"]
    gpu = {
        "name": value(fake["name"]),
        "capability": value(fake["capability"]),
        "memory": {"error": f"NVMLError_{fake['nvmlDeviceGetMemoryInfo']}: Not Supported"},
    }
    meminfo = f"MemTotal: {fake['MemTotal_kB']} kB\nMemAvailable: {fake['MemAvailable_kB']} kB\n"
    host = Replay.of(
        {
            ("access", "/dev/nvidiactl"): "rw",
            ("read", "/proc/meminfo"): meminfo,
            ("child", "ask_nvml"): {"gpus": [gpu]},
        }
    )
    vendor, facts, _ = probe_nvidia(host, ())
    memory = vendor.gpus[0].memory
    assert (memory.kind, memory.total_bytes) == (wanted["kind"], wanted["total_bytes"])
    assert memory.free_bytes == wanted["available_bytes"]
    assert facts["nvidia.gpus.0.memory.total_bytes"].source == wanted["source"]
    assert facts["nvidia.gpus.0.memory.free_bytes"].source == wanted["source"]


def amd_host(fake: dict[str, Any]) -> Replay:
    amdsmi: Any = HostError("absent", "no module amdsmi")
    if "amdsmi_init" in fake:
        amdsmi = {"error": {"name": "AmdSmiLibraryException", "text": fake["amdsmi_init"]}}
    hip = (
        [{"gfx": value(fake["gcnArchName"])}] * fake["hipGetDeviceCount"]
        if fake.get("gcnArchName")
        else []
    )
    answers: dict[tuple[Any, ...], Any] = {
        ("access", "/dev/kfd"): fake.get("/dev/kfd", "rw"),
        ("child", "ask_amdsmi"): amdsmi,
        ("child", "ask_hip"): {"gpus": hip},
    }
    if "/dev/dri/renderD128" in fake:
        answers["access", "/dev/dri/renderD128"] = ""
    return Replay.of(answers)


@pytest.mark.parametrize("at", range(3))
def test_amd_without_a_working_amdsmi(at: int) -> None:
    """B05: HIP is used and said to be; a render node without access is named."""
    case = report("B05")
    fake, wanted = case["input"]["fake"][at], case["expected"]
    vendor, _, findings = probe_amd(amd_host(fake), ())
    expected = {"rocm": "rocm", "none": "cpu"}[wanted["platform"][at]]
    assert platform(amd=vendor) == expected
    assert [gpu.arch for gpu in vendor.gpus] == [a for a in [wanted["arch"][at]] if a]
    (finding,) = findings
    if "amdsmi" in wanted["finding"][at]:
        assert finding.found.startswith(wanted["finding"][at])
    else:
        start, _, end = wanted["finding"][at].partition(": ")
        assert finding.found.startswith(start)
        assert finding.found.endswith(end)


def nvidia_host(fake: dict[str, Any]) -> Replay:
    error = {"name": f"NVMLError_{fake['nvmlInit']}", "text": "as reported"}
    answers: dict[tuple[Any, ...], Any] = {("child", "ask_nvml"): {"error": error}}
    if fake.get("tegra"):
        major, minor = fake["capability"]
        gpu = {"capability_major": value(major), "capability_minor": value(minor)}
        answers["read", "/proc/device-tree/compatible"] = "nvidia,tegra234\0"
        answers["child", "ask_cuda"] = {"gpus": [gpu]}
        return Replay.of(answers)
    device = f"{DEVICES}/{NVIDIA_BUS}"
    answers["list", DEVICES] = [NVIDIA_BUS]
    answers["read", f"{device}/class"] = "0x030200"
    answers["read", f"{device}/vendor"] = "0x10de"
    answers["read", f"{device}/device"] = "0x2684"
    if "/dev/nvidia0" not in fake:
        answers["access", "/dev/nvidiactl"] = "rw"
        answers["link", f"{device}/driver"] = "../drivers/nvidia"
    return Replay.of(answers)


@pytest.mark.parametrize("at", range(3))
def test_nvidia_without_a_working_nvml(at: int) -> None:
    """B07: a mismatch, no driver, and a Jetson, each with its own sentence."""
    case = report("B07")
    fake, wanted = case["input"]["fake"][at], case["expected"]
    host = nvidia_host(fake)
    vendor, _, findings = probe_nvidia(host, scan(host))
    assert platform(nvidia=vendor) == wanted["platform"][at].partition(",")[0]
    (finding,) = findings
    found, _, fix = wanted["finding"][at].partition("; ")
    assert found in finding.found
    assert all(word in finding.fix for word in fix.split(" or "))
