"""What of two machines changes a selection: drivers, masks, packages, limits."""

from __future__ import annotations

import msgspec

from attnctl.findings import unknown
from attnctl.machine import Fact, Memory, Package
from attnctl.machines import load
from attnctl.machines.differences import Difference, differences, static_differences
from tests.machines.probed import changed, probed_h200, with_gpu, zen3_guest


def test_what_moves_between_two_boots_does_not_change_a_selection() -> None:
    """Free memory, names, sources, addresses and findings are no reason to select anew."""
    old = probed_h200()
    new = with_gpu(
        changed(
            old,
            name="other",
            origin="file",
            sources=("x",),
            os={"kernel": "7.0"},
            facts={"nvidia.driver": Fact(status="ok", source="nvml")},
            findings=(unknown("x", "y", "z"),),
            cpu=changed(old.cpu, memory_available_bytes=1, model="x", source="y"),
        ),
        name="H200",
        uuid="GPU-9",
        pci_bus_id="0000:99:00.0",
        memory=changed(old.nvidia.gpus[0].memory, free_bytes=1),
    )
    assert differences(old, new) == ()


def test_an_upgrade_shows_driver_packages_and_masks() -> None:
    """Each changed fact once, by its path, with both values."""
    old = probed_h200()
    packages = {
        "torch": changed(old.packages["torch"], version="2.13.0+cu130", source="elsewhere"),
        "triton": Package(status="ok", source="version.py", version="3.7.1"),
    }
    new = with_gpu(
        changed(old, packages=packages, nvidia=changed(old.nvidia, driver="590.48")),
        visible=False,
        logical_index=None,
    )
    assert differences(old, new) == (
        Difference("nvidia.driver", "580.159.04", "590.48"),
        Difference("nvidia.gpus.0.visible", True, False),
        Difference("nvidia.gpus.0.logical_index", 0, None),
        Difference("packages.torch.version", "2.11.0+cu130", "2.13.0+cu130"),
        Difference("packages.triton", None, "3.7.1"),
    )
    assert [d.path for d in differences(new, old)] == [d.path for d in differences(old, new)]


def test_a_package_that_became_unusable_is_a_difference() -> None:
    """Installed and broken is not installed and working, though the version is the same."""
    old = probed_h200()
    broken = changed(old.packages["torch"], usable=False, reason="no libcudart")
    new = changed(old, packages={"torch": broken})
    assert differences(old, new) == (Difference("packages.torch.usable", None, False),)


def test_an_absent_package_is_one_that_is_not_listed() -> None:
    """An older probe that did not look for a package agrees with one that did not find it."""
    old = probed_h200()
    listed = {**old.packages, "fla": Package(status="absent", source="find_spec")}
    assert differences(old, changed(old, packages=listed)) == ()


def test_a_card_taken_out_is_one_difference() -> None:
    """A GPU that only one side has is named, not listed fact by fact."""
    old = probed_h200()
    new = changed(old, nvidia=changed(old.nvidia, gpus=old.nvidia.gpus[:1]))
    lost = Difference("nvidia.gpus.1", "NVIDIA H200 141GB HBM3e", None)
    assert differences(old, new) == (lost,)
    assert static_differences(old, new) == ()


def test_limits_and_features_of_a_processor_change_a_selection() -> None:
    """A smaller quota, a lost feature and why it was lost each show."""
    old = zen3_guest()
    cpu = changed(old.cpu, usable=1, isa=old.cpu.isa[:-1], isa_unusable={"avx2": "masked"})
    assert differences(old, changed(old, cpu=cpu)) == (
        Difference("cpu.isa.avx2", True, False),
        Difference("cpu.isa_unusable.avx2", None, "masked"),
        Difference("cpu.usable", 2, 1),
    )


def test_differences_are_exact_where_the_static_ones_are_not() -> None:
    """A total that moved by a mebibyte is the same card, and may hold another cache."""
    old = load("h200")
    new = with_gpu(old, memory=Memory(kind="discrete", total_bytes=143_770 << 20))
    assert static_differences(old, new) == ()
    assert [d.path for d in differences(old, new)] == ["nvidia.gpus.0.memory.total_bytes"]


def test_a_difference_goes_to_json() -> None:
    """The command's JSON is the value itself."""
    (first, *_) = static_differences(load("h100"), load("h200"))
    assert msgspec.json.encode(first) == (
        b'{"path":"nvidia.gpus.0.pci_id","old":"10de:2330","new":"10de:2335"}'
    )


def test_two_probes_of_one_machine_agree() -> None:
    """A saved probe and the next one differ in timings and limits, in nothing read."""
    old = changed(zen3_guest(), origin="probed", timings_ms={"cpu": 3.25}, usual_packages={})
    cpu = changed(
        old.cpu,
        quota=3.5,
        memory_total_bytes=1 << 40,
        memory_limit_bytes=1 << 33,
        bandwidth_gbps=80.5,
        caches=(),
        threads=99,
    )
    new = changed(old, cpu=cpu, timings_ms={"cpu": 9.5, "limits": 0.5}, origin="file")
    assert differences(old, new) == ()


def test_a_bundled_machine_counts_as_its_usual_image() -> None:
    """The image's packages are compared with those found, and a usual version is a version."""
    bundled = load("h200")
    there = {
        n: Package(status="ok", source="x", version=v) for n, v in bundled.usual_packages.items()
    }
    assert differences(bundled, changed(bundled, origin="file", packages=there)) == ()
    fewer = {name: package for name, package in there.items() if name != "torch"}
    lost = Difference("packages.torch", bundled.usual_packages["torch"], None)
    assert differences(bundled, changed(bundled, origin="file", packages=fewer)) == (lost,)


def test_a_package_without_a_version_is_named_by_its_status() -> None:
    """Found without a version is something, and not the same as absent."""
    old = probed_h200()
    new = changed(old, packages={**old.packages, "fla": Package(status="ok", source="x")})
    assert differences(old, new) == (Difference("packages.fla", None, "ok"),)
