"""The PCI bus says which GPUs are there before any driver does."""

import pytest

from attnctl.probe import pci
from attnctl.probe.host import HostError
from attnctl.probe.tape import Replay

DEVICE = "/sys/bus/pci/devices/0000:01:00.0"


def scan(answers):
    listed = {("list", pci.DEVICES): ["0000:01:00.0"]}
    return pci.scan(Replay.of(listed | answers))


def device(**changes):
    texts = {"class": "0x030200\n", "vendor": "0x10de\n", "device": "0x2335\n"} | changes
    return {("read", f"{DEVICE}/{name}"): text for name, text in texts.items()}


def test_a_display_device_has_its_ids_and_its_driver():
    """Ids come without 0x, the driver is the name behind the link."""
    driver = {("link", f"{DEVICE}/driver"): "../../../../bus/pci/drivers/nvidia"}
    (found,) = scan(device() | driver)
    assert found == pci.PciDevice("0000:01:00.0", "10de", "2335", "nvidia")
    assert found.pci_id == "10de:2335"
    assert found.path == DEVICE


def test_a_device_without_a_driver_is_found_too():
    """No link means no driver, and that is no problem of reading."""
    (found,) = scan(device())
    assert (found.driver, found.problem) == (None, "")


@pytest.mark.parametrize(
    ("kind", "count"),
    [("0x030000", 1), ("0x038000", 1), ("0x120000", 1), ("0x020000", 0), ("0x040300", 0)],
)
def test_displays_and_accelerators_count_and_network_cards_do_not(kind, count):
    """Classes 03 and 12: Instinct cards are processing accelerators."""
    assert len(scan(device(**{"class": kind}))) == count


def test_garbage_in_sysfs_is_no_device():
    """A class or a vendor that is no number is passed over."""
    assert scan(device(**{"class": "display"})) == ()
    assert scan(device(vendor="none")) == ()


def test_what_could_not_be_read_is_told():
    """A denied file leaves the device, without its id, and with the reason."""
    denied = {
        ("read", f"{DEVICE}/device"): HostError("denied", "Permission denied"),
        ("link", f"{DEVICE}/driver"): HostError("denied", "Permission denied"),
    }
    (found,) = scan(device() | denied)
    assert found.pci_id is None
    assert found.problem == "device: Permission denied; driver: Permission denied"


def test_a_machine_without_a_pci_bus_has_no_devices():
    """Many single-board computers have none."""
    assert pci.scan(Replay.of({})) == ()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("00000000:17:00.0", "0000:17:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("0000:C1:00.0", "0000:c1:00.0"),
        ("10001:01:00.0", "10001:01:00.0"),
        ("17:00.0", None),
        ("", None),
        (None, None),
    ],
)
def test_bus_ids_of_all_libraries_become_those_of_sysfs(written, read):
    """NVML pads the domain, CUDA writes capitals."""
    assert pci.bus_id(written) == read
