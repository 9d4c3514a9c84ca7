"""What is saved names no person, host or single piece of hardware, and replays as before."""

import msgspec
import pytest

from attnctl.findings import unmet
from attnctl.machine import Cpu, Fact, Gpu, Machine, Vendor
from attnctl.probe.host import HostError
from attnctl.probe.redact import redact_machine, redact_tape
from attnctl.probe.tape import Replay, tape_of, write_tape
from attnctl.probe.visibility import amd_visible, cuda_visible

FIRST = "GPU-aaaa1111-2222-3333-4444-555566667777"
SECOND = "GPU-aaff9999-2222-3333-4444-555566667777"
SLICE = "MIG-abcdabcd-1234-5678-9abc-def012345678"
VENV = "/home/alice/secret-project/.venv/lib/python3.12/site-packages"
POD = "kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice"
BOX = "cri-containerd-0123456789abcdef0123456789abcdef.scope"
TOKEN = "hf_" + "abcdefghijklmnopqrst"

PRIVATE = {
    ("read", "/proc/cpuinfo"): "processor : 0\nSerial\t\t: 10000000deadbeef\nflags : serialize\n",
    ("read", "/etc/group"): "root:x:0:\nvideo:x:44:alice,bob\nalice:x:1000:\n",
    ("read", "/proc/self/cgroup"): f"0::/{POD}/{BOX}\n1:cpu:/alice-jobs/42\n",
    ("read", f"/sys/fs/cgroup/{POD}/{BOX}/cpu.max"): "max 100000\n",
    ("read", "/sys/fs/cgroup/cpu/alice-jobs/42/cpu.cfs_quota_us"): "-1\n",
    ("read", "/proc/self/mountinfo"): (
        "1 0 0:1 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/alice\n"
        "2 1 0:2 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    ),
    ("site_dirs",): [VENV],
    ("list", VENV): ["secret_package", "torch", "torch-2.13.0.dist-info", "alice_tools.pth"],
    ("read", f"{VENV}/torch/version.py"): "__version__ = '2.13.0'\n",
    ("env", "HOME"): "/home/alice",
    ("env", "CUDA_VISIBLE_DEVICES"): f"GPU-aaaa,{SECOND}",
    ("read", "/sys/class/kfd/kfd/topology/nodes/1/properties"): (
        "simd_count 304\nunique_id 1234605616436508552\n"
    ),
    ("env", "ROCR_VISIBLE_DEVICES"): "GPU-1122334455667788",
    ("child", "ask_nvml"): {
        "gpus": [{"uuid": FIRST, "serial": "1650522000123"}, {"uuid": SECOND}],
        "mig": [SLICE],
        "note": f"alice@build-host.example.org 00:1b:44:11:3a:b7 {TOKEN}",
    },
    ("child", "ask_hip"): HostError("failed", "cannot open /home/alice/rocm/lib.so"),
    ("access", "/.dockerenv"): "r",
    ("access", "/dev/nvidiactl"): "rw",
    ("list", "/opt/rocm-7.2/lib"): ["libamdhip64.so"],
}


def answers():
    tape = redact_tape(tape_of(PRIVATE))
    return tape, Replay(tape)


@pytest.mark.parametrize(
    "private",
    [
        "alice",
        "bob",
        "secret",
        "deadbeef",
        "aaaa1111",
        "aaff9999",
        "abcdabcd",
        "1650522000123",
        "1234605616436508552",
        "1122334455667788",
        "build-host",
        "00:1b:44",
        TOKEN,
        "0a1b2c3d_1111",
        "0123456789abcdef",
    ],
)
def test_a_saved_tape_holds_no_private_name(private):
    """Names of people, hosts, devices, containers and projects are gone from all of it."""
    assert private not in write_tape(answers()[0]).decode()


def test_what_the_probe_needs_is_still_there():
    """System paths, package versions and flags stay as they were."""
    _, replay = answers()
    assert replay.ask("access", "/.dockerenv") == "r"
    assert replay.ask("access", "/dev/nvidiactl") == "rw"
    assert replay.ask("list", "/opt/rocm-7.2/lib") == ["libamdhip64.so"]
    assert "flags : serialize" in replay.ask("read", "/proc/cpuinfo")
    assert replay.ask("read", "/etc/group") == "root:x:0:\nvideo:x:44:"


def test_folders_of_python_are_found_under_their_new_names():
    """The list of folders, the listing and the files in them are renamed alike."""
    _, replay = answers()
    (folder,) = replay.ask("site_dirs")
    assert replay.ask("list", folder) == ["torch", "torch-2.13.0.dist-info"]
    assert replay.ask("read", f"{folder}/torch/version.py") == "__version__ = '2.13.0'\n"
    assert folder.startswith(replay.ask("env", "HOME") + "/d")


def test_cgroups_are_found_under_their_new_names():
    """The path in /proc/self/cgroup still leads to the files of the group."""
    _, replay = answers()
    first, second, _ = replay.ask("read", "/proc/self/cgroup").split("\n")
    assert "kubepods" in first
    path = first.removeprefix("0::")
    assert replay.ask("read", f"/sys/fs/cgroup{path}/cpu.max") == "max 100000\n"
    path = second.removeprefix("1:cpu:")
    assert replay.ask("read", f"/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us") == "-1\n"


def test_masks_pick_the_same_gpus_as_before():
    """A prefix that fitted one GPU, a whole UUID and an AMD identifier keep what they fit."""
    _, replay = answers()
    told = replay.ask("child", "ask_nvml")
    uuids = [gpu["uuid"] for gpu in told["gpus"]]
    mask = {"CUDA_VISIBLE_DEVICES": replay.ask("env", "CUDA_VISIBLE_DEVICES")}
    assert cuda_visible(mask, uuids).physical == (0, 1)
    assert told["mig"][0].startswith("MIG-0")
    text = replay.ask("read", "/sys/class/kfd/kfd/topology/nodes/1/properties")
    number = int(text.split("unique_id ")[1])
    rocr = {"ROCR_VISIBLE_DEVICES": replay.ask("env", "ROCR_VISIBLE_DEVICES")}
    assert amd_visible(rocr, ["GPU-0", f"GPU-{number:016x}"]).physical == (1,)


@pytest.mark.parametrize(("mask", "fits"), [("GPU-aa", 2), ("GPU-zz", 0), ("GPU-aaf", 1)])
def test_a_short_mask_fits_as_many_gpus_as_before(mask, fits):
    """An ambiguous prefix stays ambiguous, and one that fits nothing fits nothing."""
    private = {("env", "CUDA_VISIBLE_DEVICES"): mask, ("child", "ask_nvml"): [FIRST, SECOND, SLICE]}
    replay = Replay(redact_tape(tape_of(private)))
    uuids = replay.ask("child", "ask_nvml")[:2]
    new = replay.ask("env", "CUDA_VISIBLE_DEVICES")
    assert sum(uuid.startswith(new) for uuid in uuids) == fits


def test_an_error_keeps_its_kind():
    """Only the private part of its text goes."""
    _, replay = answers()
    with pytest.raises(HostError) as caught:
        replay.ask("child", "ask_hip")
    assert caught.value.kind == "failed"
    assert caught.value.detail.startswith("cannot open /home/d")


def test_a_saved_machine_has_no_identity_and_the_same_facts():
    """UUIDs go, private paths are renamed, everything that decides stays."""
    gpu = Gpu(index=0, arch="sm_90", uuid=FIRST, pci_bus_id="0000:17:00.0", mig=(SLICE,))
    machine = Machine(
        name="NVIDIA H200",
        cpu=Cpu(source="/proc/cpuinfo", isa=("avx2",)),
        nvidia=Vendor(status="ok", source="nvml", gpus=(gpu,)),
        facts={"packages.torch.version": Fact("ok", f"{VENV}/torch/version.py")},
        findings=(unmet("x", "a", f"/home/alice and {FIRST}"),),
        timings_ms={"cpu": 1.0},
    )
    saved = redact_machine(machine)
    text = msgspec.json.encode(saved).decode()
    assert "alice" not in text
    assert "aaaa1111" not in text
    assert "abcdabcd" not in text
    assert saved.nvidia.gpus[0] == msgspec.structs.replace(
        gpu, uuid=None, mig=saved.nvidia.gpus[0].mig
    )
    assert saved.cpu == machine.cpu
    assert saved.timings_ms == {}
