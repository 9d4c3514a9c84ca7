"""The children really call the libraries: stand-ins for them, written in C, are compiled and asked.

The structures in the stand-ins are declared from the vendors' specifications and not from the
children, so that an offset that is wrong on one side shows.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from attnctl.probe.answers import (
    AmdsmiAnswer,
    CudaAnswer,
    HipAnswer,
    NvmlAnswer,
    ZeAnswer,
    ask,
)
from attnctl.probe.host import HostError
from attnctl.probe.realhost import RealHost

STANDINS = Path(__file__).parent / "standins"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Compiles a stand-in under a library's name, where the loader of children looks first."""

    def build(source, name, *flags):
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler, "these tests compile small libraries: install a C compiler"
        command = [compiler, "-shared", "-fPIC", "-O1", *flags, "-o", str(tmp_path / name)]
        subprocess.run([*command, str(STANDINS / source)], check=True)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    return build


def test_the_cuda_driver_is_asked_without_its_mask(library, monkeypatch):
    """Two GPUs although the mask leaves one; what the library prints goes nowhere."""
    library("cuda.c", "libcuda.so.1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    answer = ask(RealHost(), "ask_cuda", CudaAnswer)
    assert isinstance(answer, CudaAnswer)
    assert (answer.error, answer.version.value, len(answer.gpus)) == (None, 13010, 2)
    gpu = answer.gpus[1]
    assert (gpu.name.value, gpu.bus_id.value) == ("Stand-in 41", "0000:C1:00.0")
    assert gpu.uuid.value == "GPU-292a2b2c-2d2e-2f30-3132-333435363738"
    assert gpu.memory_bytes.value == 11 << 33
    assert (gpu.units.value, gpu.warp_size.value, gpu.integrated.value) == (141, 32, 0)
    assert (gpu.capability_major.value, gpu.capability_minor.value) == (9, 0)
    assert (gpu.memory_clock_khz.value, gpu.bus_width_bits.value) == (3_201_000, 6144)
    assert gpu.shared_memory_bytes.value == 49_152
    assert gpu.shared_memory_optin_bytes.value is None
    assert "CUDA_ERROR_INVALID_VALUE" in gpu.shared_memory_optin_bytes.error


def test_an_error_of_cuinit_has_the_vendor_s_name(library, monkeypatch):
    """The name is what people search for."""
    library("cuda.c", "libcuda.so.1")
    monkeypatch.setenv("FAKE_CUDA", "error")
    answer = ask(RealHost(), "ask_cuda", CudaAnswer)
    assert answer.error.name == "CUDA_ERROR_SYSTEM_NOT_READY"
    assert answer.error.text == "cuInit returned 802"


@pytest.mark.parametrize(("mode", "kind"), [("crash", "crashed"), ("hang", "timeout")])
def test_a_library_that_crashes_or_hangs_is_a_typed_error(library, monkeypatch, mode, kind):
    """The probe lives on."""
    library("cuda.c", "libcuda.so.1")
    monkeypatch.setenv("FAKE_CUDA", mode)
    answer = ask(RealHost(), "ask_cuda", CudaAnswer)
    assert isinstance(answer, HostError)
    assert answer.kind == kind


def test_a_library_that_is_no_library_is_broken_and_not_absent(tmp_path, monkeypatch):
    """A text file under the library's name."""
    (tmp_path / "libcuda.so.1").write_text("not an ELF file")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    answer = ask(RealHost(), "ask_cuda", CudaAnswer)
    assert (answer.kind, "libcuda.so.1" in answer.detail) == ("failed", True)


@pytest.mark.parametrize("flags", [(), ("-DOLD",)], ids=["ROCm 6", "ROCm 5"])
def test_hip_tells_the_target_in_either_layout_of_its_properties(library, monkeypatch, flags):
    """The target's name is found behind a device name that looks like one; masks are lifted."""
    library("hip.c", "libamdhip64.so", *flags)
    for mask in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(mask, "")
    answer = ask(RealHost(), "ask_hip", HipAnswer)
    assert isinstance(answer, HipAnswer)
    assert answer.version.value == 60443484
    (gpu,) = answer.gpus
    assert gpu.gfx.value == "gfx942:sramecc+:xnack-"
    assert (gpu.name.value, gpu.bus_id.value) == ("Stand-in 0", "0000:46:00.0")
    assert gpu.uuid.value == "GPU-00000000000000a7"
    assert gpu.memory_bytes.value == 206_141_652_992
    assert (gpu.multiprocessors.value, gpu.warp_size.value) == (304, 64)
    assert (gpu.shared_memory_bytes.value, gpu.integrated.value) == (65_536, 0)


def test_hip_without_a_gpu_says_so_in_its_own_words(library, monkeypatch):
    """An error of HIP is not a crash of the child."""
    library("hip.c", "libamdhip64.so")
    monkeypatch.setenv("FAKE_HIP_NONE", "1")
    answer = ask(RealHost(), "ask_hip", HipAnswer)
    assert answer.error.name == "hipErrorNoDevice"


def test_level_zero_tells_everything_of_a_gpu(library, monkeypatch):
    """Every structure has the layout of the specification; the other processor is passed over."""
    library("level_zero.c", "libze_loader.so.1")
    monkeypatch.setenv("ZE_AFFINITY_MASK", "7")
    answer = ask(RealHost(), "ask_level_zero", ZeAnswer)
    assert isinstance(answer, ZeAnswer)
    assert answer.version.value == "1.6"
    (gpu,) = answer.gpus
    assert (gpu.name.value, gpu.pci_id.value) == ("Stand-in Arc", "8086:56a0")
    assert gpu.uuid.value == "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"
    assert gpu.bus_id.value == "0000:03:00.0"
    assert (gpu.units.value, gpu.execution_units.value, gpu.tiles.value) == (32, 512, 2)
    assert gpu.subgroup_sizes.value == (8, 16, 32)
    assert gpu.memory_bytes.value == 16_225_243_136 + 1000
    assert gpu.shared_memory_bytes.value == 65_536
    assert (gpu.fp16.value, gpu.fp64.value, gpu.integrated.value) == (True, False, False)


def test_level_zero_without_a_driver_says_so(library, monkeypatch):
    """zeInit fails where no user-space driver knows a GPU."""
    library("level_zero.c", "libze_loader.so.1")
    monkeypatch.setenv("FAKE_ZE_NONE", "1")
    answer = ask(RealHost(), "ask_level_zero", ZeAnswer)
    assert answer.error.name == "no GPU or no driver"


def test_nvml_is_asked_field_by_field(monkeypatch):
    """A field that one GPU refuses costs no other; a lost GPU costs no other GPU."""
    monkeypatch.syspath_prepend(STANDINS)
    answer = ask(RealHost(), "ask_nvml", NvmlAnswer)
    assert isinstance(answer, NvmlAnswer)
    assert (answer.driver.value, answer.cuda.value) == ("580.82.07", 13000)
    first, second, lost = answer.gpus
    assert (first.name.value, first.uuid.value) == ("NVIDIA H200", "GPU-a")
    assert (first.bus_id.value, first.pci_id.value) == ("00000000:1B:00.0", "10de:2335")
    assert (first.capability.value, first.cores.value) == ((9, 0), 16_896)
    assert (first.memory.value, first.bus_width_bits.value) == ((1000, 900), 6144)
    assert (first.memory_clock_mhz.value, first.nvlinks.value) == (3201, 4)
    assert (first.mig_mode.value, first.compute_mode.value) == (1, 3)
    (instance,) = first.mig
    assert (instance.uuid.value, instance.units.value) == ("MIG-c", 60)
    assert second.memory.error == "NVMLError_NotSupported: Not Supported"
    assert second.nvlinks.error == "NVMLError_NotSupported: Not Supported"
    assert (second.mig, second.cores.value) == ((), 16_896)
    assert lost.error == "NVMLError_GpuIsLost: GPU is lost"


@pytest.mark.parametrize("error", ["LibRmVersionMismatch", "LibraryNotFound"])
def test_nvml_that_does_not_start_is_an_answer(monkeypatch, error):
    """The vendor's name of the error decides what is advised."""
    monkeypatch.syspath_prepend(STANDINS)
    monkeypatch.setenv("FAKE_NVML", error)
    answer = ask(RealHost(), "ask_nvml", NvmlAnswer)
    assert answer.error.name == f"NVMLError_{error}"


AMDSMI = """
class AmdSmiException(Exception): pass
def amdsmi_init():
    print("to stdout")
    {init}
def amdsmi_get_processor_handles(): return ["a"]
def amdsmi_get_gpu_driver_info(handle): return {{"driver_version": "6.12.12"}}
def amdsmi_get_gpu_asic_info(handle):
    return {{"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942",
            "{units}": 304}}
def amdsmi_get_gpu_device_bdf(handle): return "0000:05:00.0"
def amdsmi_get_gpu_vram_usage(handle): return {{"vram_total": 196592, "vram_used": 283}}
def amdsmi_get_gpu_vram_info(handle): raise KeyError("vram_max_bandwidth")
"""


@pytest.mark.parametrize("units", ["num_compute_units", "num_of_compute_units"])
def test_amdsmi_is_asked_field_by_field(tmp_path, monkeypatch, units):
    """Keys that were renamed between releases are both known; a KeyError costs one field."""
    (tmp_path / "amdsmi.py").write_text(AMDSMI.format(init="", units=units))
    monkeypatch.syspath_prepend(tmp_path)
    answer = ask(RealHost(), "ask_amdsmi", AmdsmiAnswer)
    assert isinstance(answer, AmdsmiAnswer)
    assert answer.driver.value == "6.12.12"
    (gpu,) = answer.gpus
    assert (gpu.name.value, gpu.gfx.value) == ("AMD Instinct MI300X", "gfx942")
    assert (gpu.bus_id.value, gpu.units.value) == ("0000:05:00.0", 304)
    assert gpu.memory.value == (206_141_652_992, 283 << 20)
    assert gpu.bandwidth_gbps.error == "KeyError: 'vram_max_bandwidth'"


@pytest.mark.parametrize(
    ("text", "kind", "detail"),
    [
        # what the import raises where it is absent; tests/packaging has environments without it
        (
            "raise ModuleNotFoundError(\"No module named 'amdsmi'\", name='amdsmi')",
            "absent",
            "amdsmi is not installed",
        ),
        ("print('noise'); raise KeyError('libamd_smi.so')", "failed", "KeyError: 'libamd_smi.so'"),
        ("import os; os.abort()", "crashed", "SIGABRT"),
        ("raise SystemExit(3)", "failed", "SystemExit"),
    ],
)
def test_an_amdsmi_that_cannot_be_imported(tmp_path, monkeypatch, text, kind, detail):
    """Not installed, installed without ROCm, and worse."""
    (tmp_path / "amdsmi.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    answer = ask(RealHost(), "ask_amdsmi", AmdsmiAnswer)
    assert isinstance(answer, HostError)
    assert answer.kind == kind
    assert detail in answer.detail


def test_an_amdsmi_that_does_not_start_is_an_answer(tmp_path, monkeypatch):
    """Its own error, by name."""
    text = AMDSMI.format(init="raise AmdSmiException('no permission')", units="n")
    (tmp_path / "amdsmi.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    answer = ask(RealHost(), "ask_amdsmi", AmdsmiAnswer)
    assert (answer.error.name, answer.error.text) == ("AmdSmiException", "no permission")
