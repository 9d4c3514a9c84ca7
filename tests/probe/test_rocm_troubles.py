"""AMD machines on which something is missing, denied or broken: one finding, and what helps."""

import pytest

from attnctl.machine import platform_of
from attnctl.probe import kfd
from attnctl.probe.host import HostError
from attnctl.probe.rocm import probe_amd
from attnctl.probe.tape import Replay
from tests.probe.amd_machines import AMDSMI_ERROR, NO_AMDSMI, as_machine, hip_only
from tests.probe.gpu_tapes import children_asked, machine, probed, refused, value


def test_a_broken_amdsmi_is_a_finding_and_the_card_works():
    """PyTorch brings its own HIP, so none on the system is no finding; a desktop processor's
    graphics beside the card do not count."""
    vendor, facts, findings = probed(probe_amd, machine("rx7900xtx-amdsmi-broken"))
    assert list(findings) == ["amd.amdsmi_unusable"]
    assert findings["amd.amdsmi_unusable"].found.startswith("amdsmi unusable, used KFD topology")
    card, graphics = vendor.gpus
    assert (card.arch, card.unit_count, card.warp_size, card.visible) == ("gfx1100", 96, 32, True)
    assert card.memory.total_bytes == 25_753_026_560
    assert card.bandwidth_gbps is None
    assert "HBM alone" in facts["amd.gpus.0.bandwidth_gbps"].reason
    assert (graphics.arch, graphics.visible) == ("gfx1036", False)
    assert "ROCm does not support" in facts["amd.gpus.1.visible"].reason


@pytest.mark.parametrize(
    ("gfx", "amdsmi", "code", "text"),
    [
        ("gfx1201", AMDSMI_ERROR, "amd.amdsmi_unusable", "amdsmi unusable, used HIP"),
        ("gfx942:sramecc+:xnack-", NO_AMDSMI, "amd.amdsmi_missing", "amdsmi missing, used HIP"),
    ],
)
def test_hip_is_enough_where_sysfs_and_amdsmi_say_nothing(gfx, amdsmi, code, text):
    """Containers without the driver's part of sysfs: the platform is ROCm, and one finding."""
    vendor, _, findings = probed(probe_amd, hip_only(gfx, amdsmi=amdsmi))
    (gpu,) = vendor.gpus
    assert gpu.arch == gfx.partition(":")[0]
    assert platform_of(as_machine(vendor)) == "rocm"
    assert list(findings) == [code]
    assert findings[code].found.startswith(text)


def test_a_render_node_without_access_is_the_one_finding():
    """HIP counts none, /dev/kfd is open: the group or the device mapping is named, not amdsmi."""
    host = Replay.of(
        {
            ("access", "/dev/kfd"): "rw",
            ("access", "/dev/dri/renderD128"): "",
            ("child", "ask_amdsmi"): AMDSMI_ERROR,
            ("child", "ask_hip"): {"version": value(60443484), "gpus": []},
        }
    )
    vendor, _, findings = probed(probe_amd, host)
    assert vendor.gpus == ()
    assert platform_of(as_machine(vendor)) == "cpu"
    assert list(findings) == ["amd.render_node_denied"]
    finding = findings["amd.render_node_denied"]
    assert finding.found.startswith("render node not readable: /dev/dri/renderD128")
    assert "group or device mapping" in finding.found
    assert "usermod -aG render,video" in finding.fix
    assert "--device /dev/dri" in finding.fix
    assert vendor.reason == finding.found


def test_a_denied_render_node_of_one_card_is_told_by_its_own_name():
    """KFD knows which node is the card's; HIP lists none because of it."""
    host = machine(
        "mi250x",
        answers={
            ("access", "/dev/dri/renderD128"): "",
            ("access", "/dev/dri/renderD129"): HostError("absent", "No such file or directory"),
            ("child", "ask_hip"): {"error": {"name": "hipErrorNoDevice", "text": "returned 100"}},
        },
    )
    vendor, facts, findings = probed(probe_amd, host)
    assert set(findings) == {"amd.render_node_denied", "amd.no_render_node"}
    assert "renderD129 is not there" in findings["amd.no_render_node"].found
    assert not any(gpu.visible for gpu in vendor.gpus)
    assert facts["amd.gpus.0.visible"].source == "/dev/dri/renderD128"


def test_a_compute_node_without_the_group_is_the_one_finding():
    """The card is described from sysfs; amdsmi's own complaint about rights is not repeated."""
    vendor, _, findings = probed(probe_amd, machine("amd-without-render-group"))
    assert list(findings) == ["amd.kfd_denied"]
    finding = findings["amd.kfd_denied"]
    assert "/dev/kfd is there" in finding.found
    assert "not in the group render" in finding.found
    (gpu,) = vendor.gpus
    assert (gpu.arch, gpu.unit_count, gpu.visible) == ("gfx942", 304, False)
    assert vendor.status == "unknown"
    assert "ask_hip" not in children_asked(probe_amd, machine("amd-without-render-group"))


def test_a_missing_compute_node_is_told_with_the_option_of_the_container():
    """The driver is bound and /dev/kfd was not passed."""
    gone = {("access", "/dev/kfd"): HostError("absent", "No such file or directory")}
    _, _, findings = probed(probe_amd, machine("mi250x", answers=gone))
    assert list(findings) == ["amd.no_kfd"]
    assert "--device /dev/kfd" in findings["amd.no_kfd"].fix


def test_a_card_without_its_driver_is_named():
    """Nothing but the PCI bus knows it."""
    devices = "/sys/bus/pci/devices"
    host = Replay.of(
        {
            ("list", devices): ["0000:03:00.0"],
            ("read", f"{devices}/0000:03:00.0/class"): "0x030000",
            ("read", f"{devices}/0000:03:00.0/vendor"): "0x1002",
            ("read", f"{devices}/0000:03:00.0/device"): "0x744c",
        }
    )
    vendor, _, findings = probed(probe_amd, host)
    assert list(findings) == ["amd.no_driver"]
    assert "1002:744c at 0000:03:00.0 has no driver bound" in findings["amd.no_driver"].found
    assert [(g.pci_id, g.visible) for g in vendor.gpus] == [("1002:744c", False)]
    assert children_asked(probe_amd, host) == []


def test_an_amdsmi_that_crashes_costs_nothing_but_a_finding():
    """The guarded child dies, the card is described."""
    crash = {("child", "ask_amdsmi"): HostError("crashed", "ask_amdsmi: ended by SIGSEGV")}
    vendor, _, findings = probed(probe_amd, machine("mi300x-x8", answers=crash))
    assert "SIGSEGV" in findings["amd.amdsmi_unusable"].found
    assert all(gpu.visible for gpu in vendor.gpus)


def test_a_hip_that_hangs_leaves_the_cards_visible_and_the_question_open():
    """The compute driver lists them and the nodes are open."""
    hang = {("child", "ask_hip"): HostError("timeout", "ask_hip: no answer within 2 s")}
    vendor, facts, findings = probed(probe_amd, machine("mi300x-x8", answers=hang))
    assert all(gpu.visible for gpu in vendor.gpus)
    assert facts["amd.gpus.0.visible"].status == "timeout"
    assert vendor.gpus[0].features == ("sramecc+",)
    assert list(findings) == ["amd.hip_timeout"]


def test_a_hip_that_lists_none_of_the_cards_is_a_finding():
    """An old libamdhip64 passes over a new card without an error."""
    none = {("child", "ask_hip"): {"version": value(50221153), "gpus": []}}
    vendor, _, findings = probed(probe_amd, machine("mi300x-x8", answers=none))
    assert "KFD lists 8 and HIP none" in findings["amd.hip_lists_none"].found
    assert not any(gpu.visible for gpu in vendor.gpus)


@pytest.mark.parametrize(
    "text",
    ["", "gfx_target_version", "gfx_target_version -1\nsimd_count 4", "a b c\n" * 9, "\0\0 1"],
)
def test_a_damaged_properties_file_is_no_gpu(text):
    """Lines of any other form than "name number" are passed over."""
    nodes = kfd.NODES
    host = Replay.of({("list", nodes): ["0"], ("read", f"{nodes}/0/properties"): text})
    assert kfd.topology(host).gpus == ()


def test_nodes_that_may_not_be_read_are_counted_as_denied():
    """A container sees the nodes of cards that it was not given."""
    nodes = kfd.NODES
    denied = {("read", f"{nodes}/3/properties"): HostError("denied", "Operation not permitted")}
    host = machine("mi300x-x8", answers=denied)
    assert kfd.topology(host).denied == ("3",)
    assert len(kfd.topology(host).gpus) == 7


def test_a_refused_field_costs_no_other():
    """HIP without a UUID call still gives target and memory."""
    answer = machine("mi250x").ask("child", "ask_hip")
    gpus = [gpu | {"name": refused("HipError", "no name")} for gpu in answer["gpus"]]
    host = machine("mi250x", answers={("child", "ask_hip"): answer | {"gpus": gpus}})
    vendor, facts, _ = probed(probe_amd, host)
    assert vendor.gpus[0].name is None
    assert "no name" in facts["amd.gpus.0.name"].reason
    assert vendor.gpus[0].features == ("sramecc+", "xnack-")


def test_a_compute_driver_without_a_gpu_is_no_problem():
    """The module may be loaded where no AMD card is: its list of nodes is empty of GPUs."""
    answers = {
        ("list", "/sys/bus/pci/devices"): [],
        ("list", kfd.NODES): ["0"],
        ("child", "ask_hip"): {"error": {"name": "hipErrorNoDevice", "text": "returned 100"}},
    }
    host = machine("mi250x", answers=answers)
    vendor, _, findings = probed(probe_amd, host)
    assert (vendor.status, findings) == ("absent", {})
    assert children_asked(probe_amd, host) == []
