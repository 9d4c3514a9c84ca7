"""Asks the AMD system management library, through amdsmi, about every AMD GPU.

amdsmi prints to stdout and raises KeyError where ROCm is not installed; the child bears both.
By hand: `python -m attnctl.probe.children.ask_amdsmi`.
"""

from __future__ import annotations

from typing import Any

from attnctl.probe.children.fields import field, print_answer, text
from attnctl.probe.host import HostError

MIB = 1 << 20


def answer() -> dict[str, Any]:
    """{"error": {"name", "text"}} where the library does not start, else one entry per GPU."""
    amdsmi = _module()
    try:
        amdsmi.amdsmi_init()
        handles = amdsmi.amdsmi_get_processor_handles()
    except Exception as error:  # AmdSmiException, and whatever old releases raise
        return {"error": {"name": type(error).__name__, "text": str(error)}}
    driver = field(lambda: _driver(amdsmi, handles[0])) if handles else {}
    return {"driver": driver, "gpus": [_gpu(amdsmi, handle) for handle in handles]}


def _module() -> Any:
    try:
        import amdsmi
    except ImportError as error:
        raise HostError("absent", f"amdsmi is not installed: {error}") from error
    except Exception as error:
        text_of = f"importing amdsmi raised {type(error).__name__}: {error}"
        raise HostError("failed", text_of) from error
    return amdsmi


def _driver(amdsmi: Any, handle: Any) -> str:
    return text(amdsmi.amdsmi_get_gpu_driver_info(handle)["driver_version"])


def _gpu(amdsmi: Any, handle: Any) -> dict[str, Any]:
    return {
        "name": field(lambda: text(amdsmi.amdsmi_get_gpu_asic_info(handle)["market_name"])),
        "gfx": field(lambda: _gfx(amdsmi.amdsmi_get_gpu_asic_info(handle))),
        "bus_id": field(lambda: text(amdsmi.amdsmi_get_gpu_device_bdf(handle))),
        "units": field(lambda: _units(amdsmi.amdsmi_get_gpu_asic_info(handle))),
        "memory": field(lambda: _memory(amdsmi.amdsmi_get_gpu_vram_usage(handle))),
        "bandwidth_gbps": field(
            lambda: int(amdsmi.amdsmi_get_gpu_vram_info(handle)["vram_max_bandwidth"])
        ),
    }


def _gfx(asic: dict[str, Any]) -> str:
    """Releases before 6.2 have no such key, some give the bare number in hex."""
    named = str(asic["target_graphics_version"])
    if not named.startswith("gfx"):
        raise ValueError(f"target_graphics_version is {named}")
    return named


def _units(asic: dict[str, Any]) -> int:
    # renamed between releases
    return int(asic.get("num_compute_units") or asic["num_of_compute_units"])


def _memory(usage: dict[str, Any]) -> list[int]:
    """Total and used bytes; the library counts in MiB."""
    return [int(usage["vram_total"]) * MIB, int(usage["vram_used"]) * MIB]


if __name__ == "__main__":
    print_answer(answer)
