"""The bundled what-if machines: their form, their sources, and the packages that they assume."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from attnctl.machine import SCHEMA, Gpu, Machine
from attnctl.machines import folder, load, names

NVIDIA = """
    t4 v100 a100-40gb a100-80gb a10 l4 l40s rtx3090 rtx4090 rtx5090
    h100-pcie h100 h200 gh200 b200 b300 gb10 thor
"""
AMD = "mi210 mi250x mi300x mi325x mi355x rx7900xtx rx9070xt strix-halo"
INTEL = "max1550 arc-a770 arc-b580"
CPU = "zen3 zen4 zen5 icelake sapphire-rapids graviton3 graviton4 grace"
PLATFORMS = {"cuda": NVIDIA, "rocm": AMD, "xpu": INTEL, "cpu": CPU}
EXPECTED = {name: platform for platform, words in PLATFORMS.items() for name in words.split()}

PACKAGES = """
    torch triton flash_attn flash_attn_3 flash_attn_4 flashinfer flashinfer_cubin flash_mla aiter
    fla mamba_ssm causal_conv1d vllm sglang transformers vllm_xpu_kernels amdsmi
"""


def gpus_of(machine: Machine) -> tuple[Gpu, ...]:
    return machine.nvidia.gpus + machine.amd.gpus + machine.intel.gpus


def unknown_keys(raw: Any, known: Any, path: str = "$") -> list[str]:
    """Key paths of the file that the decoded machine, encoded again, does not have."""
    if isinstance(raw, dict):
        return [
            found
            for key, value in raw.items()
            for found in (
                unknown_keys(value, known[key], f"{path}.{key}")
                if key in known
                else [f"{path}.{key}"]
            )
        ]
    if isinstance(raw, list):
        return [
            found
            for index, (left, right) in enumerate(zip(raw, known, strict=True))
            for found in unknown_keys(left, right, f"{path}[{index}]")
        ]
    return []


def test_every_promised_machine_is_there_and_no_other():
    """The folder holds exactly the machines that the README's readers are told of."""
    assert set(names()) == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_file_is_decoded_whole(name):
    """Each key of each file is a field of Machine: a misspelt one would be lost in silence."""
    raw = json.loads((folder() / f"{name}.json").read_text())
    machine = load(name)
    assert unknown_keys(raw, msgspec.to_builtins(machine)) == []
    assert (machine.name, machine.origin, machine.schema) == (name, "bundled", SCHEMA)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_file_is_written_in_one_form(name):
    """Sorted keys, two blanks of indent and no null: a change shows as the lines that changed."""
    text = (folder() / f"{name}.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    assert "null" not in text


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_machine_names_its_sources_and_its_platform(name):
    """Each machine has sources, and a selection would run on the platform of its vendor."""
    machine = load(name)
    assert len(machine.sources) >= 3
    assert all(len(source) > 10 for source in machine.sources)
    assert machine.platform == EXPECTED[name]
    vendors = (machine.nvidia, machine.amd, machine.intel)
    assert [v.status for v in vendors].count("ok") == (0 if EXPECTED[name] == "cpu" else 1)
    assert all(vendor.status == ("ok" if vendor.gpus else "absent") for vendor in vendors)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_machine_holds_no_fact_of_a_boot(name):
    """Drivers, packages, masks and free memory change between boots: a what-if has none."""
    machine = load(name)
    assert machine.packages == {}
    assert machine.os == {}
    assert machine.findings == ()
    assert [v.driver or v.runtime for v in (machine.nvidia, machine.amd, machine.intel)] == [
        None
    ] * 3
    for gpu in gpus_of(machine):
        assert (gpu.uuid, gpu.pci_bus_id, gpu.logical_index, gpu.visible) == (
            None,
            None,
            None,
            True,
        )
        assert gpu.memory.free_bytes is None
    assert (machine.cpu.usable, machine.cpu.quota, machine.cpu.memory_limit_bytes) == (None,) * 3


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_usual_packages_are_named_as_the_rules_ask_for_them(name):
    """Only names that a requirement can ask for, and torch on every machine."""
    usual = load(name).usual_packages
    assert usual.keys() <= set(PACKAGES.split())
    assert "torch" in usual
    suffix = {"cuda": "+cu", "rocm": "+rocm", "xpu": "+xpu", "cpu": "+cpu"}[EXPECTED[name]]
    assert suffix in usual["torch"]


def test_flash_attention_is_assumed_only_where_it_has_kernels():
    """FA2 from 8.0, FA3 on 9.x, FA4 on 9.x to 11.x, FlashMLA on 9.x and 10.x."""
    for name in NVIDIA.split():
        machine = load(name)
        major = (machine.nvidia.gpus[0].capability or (0, 0))[0]
        usual = machine.usual_packages
        assert ("flash_attn" in usual) == (major >= 8)
        assert ("flash_attn_3" in usual) == (major == 9)
        assert ("flash_attn_4" in usual) == (major in (9, 10, 11))
        assert ("flash_mla" in usual) == (major in (9, 10))
        assert ("flashinfer_cubin" in usual) == ("flashinfer" in usual) == ("vllm" in usual)


def test_aiter_is_assumed_only_on_cdna3_and_cdna4():
    """The usual image compiles AITER's kernels for gfx942 and gfx950."""
    having = {name for name in AMD.split() if "aiter" in load(name).usual_packages}
    assert having == {"mi300x", "mi325x", "mi355x"}


def test_a_note_of_facts_points_at_a_fact_of_its_file():
    """The key path of each note exists: "nvidia.gpus.0.memory.kind"."""
    files = {name: json.loads((folder() / f"{name}.json").read_text()) for name in EXPECTED}
    notes = [(raw, *note) for raw in files.values() for note in raw.get("facts", {}).items()]
    assert notes
    for raw, path, fact in notes:
        value = raw
        for key in path.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        assert value is not None
        assert fact["status"] == "assumed"
