"""Faults of the machine: libraries that hang, crash and lie, and files that do."""

from __future__ import annotations

import os

from tests.faults.row import Given, Place, Row, environ, library, machine, shell

MODEL = "{root}/examples/llama-3.1-8b.json"
PROBED = "this machine: cpu"
NODE = machine({"/dev/nvidiactl": ""})
NODES = "/sys/class/kfd/kfd/topology/nodes"
KFD = machine(
    {
        "/dev/kfd": "",
        "/dev/dri/renderD128": "",
        "/sys/module/amdgpu/version": "6.12.12",
        f"{NODES}/1/gpu_id": "28851",
        f"{NODES}/1/properties": "simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\n"
        "vendor_id 4098\ndevice_id 29857\nlocation_id 256\ndomain 0\ndrm_render_minor 128\n",
    }
)
GARBAGE = "\0\x7f\u2028 -1 99999999999999999999 x"
GARBLED = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/self/cgroup", "/proc/self/mountinfo"),
    *("/sys/devices/system/cpu/online", "/etc/os-release", "/sys/fs/cgroup/memory.max"),
    *("/sys/fs/cgroup/cpu.max", "/sys/module/nvidia/version"),
)
EVERYWHERE = machine(denied="/proc:/sys:/dev/dri:/dev/kfd:/dev/nvidiactl:/etc:/run")
# every name is a call, and every call gives what none of them does
LIES = """
class NVMLError(Exception): pass
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return lambda *given, **named: [-1, None, {"x": name}]
"""


def nvml(fault: str, module: str, says: str) -> Row:
    """What is imported as pynvml where NVIDIA's control node is there."""
    return Row(f"an NVML that {fault}", "probe", says, 0, (NODE, library("pynvml", module)))


def amdsmi(fault: str, module: str, says: str) -> Row:
    """The same of AMD's library, where its node and its kernel module are there."""
    return Row(f"an amdsmi that {fault}", "probe", says, 0, (KFD, library("amdsmi", module)))


def pipe(path: str) -> Given:
    """A pipe into which nobody writes, in the place of a file of the system."""

    def make(place: Place) -> None:
        there = place.folder / "system" / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(there)

    return make


MACHINES: tuple[Row, ...] = (
    nvml("sleeps", "import time\ntime.sleep(600)", "NVML did not answer in time: ask_nvml: no ans"),
    nvml("crashes", "import os\nos.abort()", "ask_nvml: ended by SIGABRT"),
    nvml("ends the process", "import os\nos._exit(3)", "ended with status 3, without an answer"),
    nvml(
        "floods its streams", "import os\nwhile 1: os.write(2, b'x' * 65536)", "did not answer in t"
    ),
    nvml("raises KeyError", "raise KeyError('nvml')", "KeyError: 'nvml'"),
    nvml("is no Python", "this is not", "SyntaxError: "),
    nvml("lies in every call", LIES, "nvidia.cuda_absent"),
    amdsmi("sleeps", "import time\ntime.sleep(600)", "ask_amdsmi: no answer within 2 s"),
    amdsmi("raises KeyError", "raise KeyError('libamd_smi.so')", "KeyError: 'libamd_smi.so'"),
    amdsmi("crashes", "import os\nos.abort()", "ask_amdsmi: ended by SIGABRT"),
    Row(
        "files of sysfs and proc without an end",
        "probe",
        PROBED,
        0,
        (machine(links=dict.fromkeys(GARBLED, "/dev/zero")),),
    ),
    Row(
        "files of sysfs and proc with garbage",
        "probe",
        PROBED,
        0,
        (machine(dict.fromkeys(GARBLED, GARBAGE)),),
    ),
    Row("a file of proc that is a pipe", "probe", PROBED, 0, (machine(), pipe("/proc/meminfo"))),
    Row(
        "permission errors everywhere",
        "probe",
        "NVIDIA unknown: no sign of one, but /sys/bus/pci/devices: Permission denied",
        0,
        (EVERYWHERE,),
    ),
    Row(
        "permission errors everywhere, to select",
        f"select --model {MODEL} --assume-installed all",
        ": CPU_ATTN",
        0,
        (EVERYWHERE,),
    ),
    Row("no PATH", "probe", PROBED, 0, (environ({"PATH": "/nowhere"}),)),
    Row("few open files", "probe", PROBED, 0, (shell("ulimit -n 16;"),)),
    Row(
        "a library path of nonsense",
        "probe",
        PROBED,
        0,
        (environ({"LD_LIBRARY_PATH": "/dev/null"}), NODE),
    ),
)
