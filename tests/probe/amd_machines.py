"""AMD machines that are made of a few answers."""

from attnctl.machine import Cpu, Machine
from attnctl.probe.host import HostError
from attnctl.probe.tape import Replay
from tests.probe.gpu_tapes import value

NO_AMDSMI = HostError("absent", "amdsmi is not installed: No module named 'amdsmi'")
AMDSMI_ERROR = {"error": {"name": "AmdSmiLibraryException", "text": "AMDSMI_STATUS_INIT_ERROR"}}


def hip_only(gfx, **answers):
    """A container with the compute node and a HIP that works, and nothing of sysfs."""
    gpu = {
        "name": value("AMD Radeon Graphics"),
        "gfx": value(gfx),
        "bus_id": value("0000:03:00.0"),
        "memory_bytes": value(34_208_743_424),
        "shared_memory_bytes": value(65_536),
        "warp_size": value(32 if gfx.startswith("gfx1") else 64),
        "multiprocessors": value(32),
        "integrated": value(0),
    }
    named = {
        ("access", "/dev/kfd"): "rw",
        ("child", "ask_amdsmi"): answers.get("amdsmi", AMDSMI_ERROR),
        ("child", "ask_hip"): {"version": value(70051831), "gpus": [gpu]},
    }
    return Replay.of(named)


def as_machine(vendor):
    return Machine(name="test", amd=vendor, cpu=Cpu())
