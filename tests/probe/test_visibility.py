"""Masks of three vendors: which GPUs they leave, in which order, and what is wrong with them."""

import pytest

from attnctl.machine import Gpu
from attnctl.probe.visibility import amd_visible, applied, cuda_visible, intel_visible

UUIDS = ["GPU-a1b2c3d4-1", "GPU-a1ffffff-2", "GPU-bbbbbbbb-3"]
MIG = [("MIG-77777777-1", 1), ("MIG-78888888-2", 1)]


def cuda(mask, **more):
    return cuda_visible({"CUDA_VISIBLE_DEVICES": mask}, UUIDS, MIG, **more)


@pytest.mark.parametrize(
    ("mask", "physical"),
    [
        ("2,0", (2, 0)),
        (" 1 , 2 ", (1, 2)),
        ("GPU-bbbbbbbb-3", (2,)),
        ("GPU-b,0", (2, 0)),
        ("gpu-B", (2,)),
        ("", ()),
        ("  ", ()),
        ("-1", ()),
        ("1,-1,0", (1,)),
        ("NoDevFiles", ()),
        # numbers are read as strtol reads them
        ("1x,2", (1, 2)),
    ],
)
def test_a_mask_that_is_meant_leaves_what_it_says(mask, physical):
    """Order, UUIDs, prefixes and the ways to hide on purpose need no comment."""
    visible = cuda(mask)
    assert visible.physical == physical
    assert visible.findings == ()


@pytest.mark.parametrize(
    ("mask", "physical", "code"),
    [
        ("0,7,1", (0,), "visibility.cuda.invalid"),
        ("0,,1", (0,), "visibility.cuda.invalid"),
        ("GPU-zzzz,0", (), "visibility.cuda.invalid"),
        ("all", (), "visibility.cuda.invalid"),
        ("2,GPU-a1", (2,), "visibility.cuda.ambiguous"),
        ("0,1,0", (), "visibility.cuda.duplicate"),
        ("0,GPU-a1b2c3d4-1", (), "visibility.cuda.duplicate"),
    ],
)
def test_an_entry_that_fits_not_one_device_is_a_finding(mask, physical, code):
    """It hides itself and all after it; a device named twice hides everything."""
    visible = cuda(mask)
    assert visible.physical == physical
    assert [finding.code for finding in visible.findings] == [code]
    assert all(finding.fix for finding in visible.findings)


def test_an_empty_entry_has_a_name():
    """A comma too many is found in the sentence, which would else begin with a blank."""
    found = cuda_visible({"CUDA_VISIBLE_DEVICES": "0,1,"}, UUIDS).findings[0].found
    assert found == "an empty entry fits no device; it and everything after it are hidden"
    amd = amd_visible({"HIP_VISIBLE_DEVICES": "0,,1"}, [None, None])
    assert amd.physical == (0,)
    assert amd.findings[0].found == "an empty entry fits none of the 2 GPUs that are left"


def test_an_unset_mask_leaves_everything():
    """Unset and empty are opposites."""
    assert cuda_visible({"CUDA_VISIBLE_DEVICES": None}, UUIDS).physical == (0, 1, 2)
    assert cuda_visible({}, UUIDS).physical == (0, 1, 2)


def test_a_mig_instance_is_a_part_of_its_gpu():
    """By its UUID, by a prefix, and by the form of older drivers."""
    for mask in ("MIG-77777777-1", "MIG-77"):
        visible = cuda(mask)
        assert [(entry.physical, entry.part) for entry in visible.entries] == [
            (1, "MIG-77777777-1")
        ]
    old = cuda("MIG-GPU-bbbbbbbb-3/1/0")
    assert [(entry.physical, entry.part) for entry in old.entries] == [
        (2, "MIG-GPU-bbbbbbbb-3/1/0")
    ]


def test_a_process_gets_one_mig_instance():
    """Two instances in a mask: the first counts, and the user is told."""
    visible = cuda("MIG-77777777-1,MIG-78888888-2")
    assert [entry.part for entry in visible.entries] == ["MIG-77777777-1"]
    assert [finding.code for finding in visible.findings] == ["visibility.cuda.mig"]


def test_numbers_over_different_gpus_are_uncertain_unless_in_bus_order():
    """CUDA numbers by speed, NVML by bus: only then, and only for numbers, does it matter."""
    names = ["H200", "L4", "L4"]
    assert [f.code for f in cuda("1", names=names).findings] == ["visibility.cuda.order"]
    assert cuda("GPU-b", names=names).findings == ()
    assert cuda("1", names=["L4"] * 3).findings == ()
    ordered = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert cuda_visible(ordered, UUIDS, MIG, names).findings == ()


AMD = ["GPU-1111111111111111", "GPU-2222222222222222", "GPU-3333333333333333"]


@pytest.mark.parametrize(
    ("environment", "physical", "codes"),
    [
        ({}, (0, 1, 2), []),
        ({"ROCR_VISIBLE_DEVICES": "2,0"}, (2, 0), []),
        ({"ROCR_VISIBLE_DEVICES": "GPU-2222222222222222"}, (1,), []),
        ({"ROCR_VISIBLE_DEVICES": ""}, (), []),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1"}, (1,), []),
        ({"ROCR_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, (1,), []),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"}, (0,), []),
        ({"GPU_DEVICE_ORDINAL": "1"}, (1,), []),
        ({"HIP_VISIBLE_DEVICES": "-1"}, (), []),
        ({"HIP_VISIBLE_DEVICES": "0,9,1"}, (0,), ["visibility.amd.invalid"]),
        (
            {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"},
            (0,),
            ["visibility.amd.conflict"],
        ),
        (
            {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"},
            (),
            ["visibility.amd.invalid", "visibility.amd.double_mask"],
        ),
        ({"HIP_VISIBLE_DEVICES": ""}, (), ["visibility.amd.empty"]),
    ],
)
def test_rocr_filters_first_and_hip_numbers_what_is_left(environment, physical, codes):
    """Two masks in a row, and what each is wrong about."""
    visible = amd_visible(environment, AMD)
    assert visible.physical == physical
    assert [finding.code for finding in visible.findings] == codes


@pytest.mark.parametrize(
    ("environment", "entries", "codes"),
    [
        ({}, [(0, "0"), (0, "1"), (1, "")], []),
        ({"ZE_AFFINITY_MASK": "2,0"}, [(0, "0"), (1, "")], []),
        ({"ZE_AFFINITY_MASK": "9"}, [], ["visibility.intel.invalid"]),
        ({"ZE_AFFINITY_MASK": "0.1"}, [], ["visibility.intel.invalid"]),
        ({"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}, [(0, ""), (1, "")], []),
        (
            {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE", "ZE_AFFINITY_MASK": "0.1,1"},
            [(0, "1"), (1, "")],
            [],
        ),
        (
            {"ZE_FLAT_DEVICE_HIERARCHY": "composite", "ZE_AFFINITY_MASK": "0.2,1"},
            [(1, "")],
            ["visibility.intel.invalid"],
        ),
    ],
)
def test_level_zero_counts_tiles_or_cards_by_its_hierarchy(environment, entries, codes):
    """A card with two tiles and a card with one, flat and composite."""
    visible = intel_visible(environment, [2, 1])
    assert [(entry.physical, entry.part) for entry in visible.entries] == entries
    assert [finding.code for finding in visible.findings] == codes


def test_gpus_take_their_logical_numbers_from_the_mask():
    """What the mask leaves out stays in the report, and is not visible."""
    gpus = applied([Gpu(index=0), Gpu(index=1), Gpu(index=2)], cuda("2,0"))
    assert [(gpu.visible, gpu.logical_index) for gpu in gpus] == [
        (True, 1),
        (False, None),
        (True, 0),
    ]
