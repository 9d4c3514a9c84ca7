"""What a profile's key says of the device on which it was measured."""

from __future__ import annotations

import msgspec
import pytest

from attnctl import machines
from attnctl.profile import Key
from attnctl.profile.document import key_of
from tests.profile.two_backends import KEY


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("gpu", KEY),
        ("gpu", Key(vendor="nvidia", arch="sm_87")),
        ("gpu", Key(vendor="AMD", arch="GFX1151")),
        ("gpu", Key(vendor="intel", arch="xe2-lpg")),
        ("gpu", Key(vendor="amd", arch="*", pci_id="1002:74a2")),
        ("gpu", Key(vendor="amd", arch="*")),
        ("gpu", Key(vendor="intel", arch="unknown", pci_id="8086:e20b")),
        ("cpu", Key(vendor="AMD", arch="zen3", unit_count=2)),
        ("cpu", Key(vendor="amd", arch="zen3", pci_id="*")),
        ("cpu", Key(vendor="NVIDIA", arch="armv9.2a")),
        ("cpu", Key(vendor="unknown", arch="x86_64")),
        ("cpu", Key(vendor="Intel", arch="*")),
    ],
)
def test_a_key_tells_a_processor_from_a_gpu(kind: str, key: Key) -> None:
    """By its PCI id, its architecture, and where both are open by how the vendor is written."""
    assert key.kind == kind


@pytest.mark.parametrize("name", machines.names())
def test_the_keys_of_bundled_machines_tell_what_they_are_of(name: str) -> None:
    """Each GPU by its architecture alone, each processor by its own."""
    box = machines.load(name)
    for gpu in box.gpus:
        key = key_of(box, gpu)
        assert key.kind == msgspec.structs.replace(key, pci_id=None).kind == "gpu"
    assert key_of(box, None).kind == "cpu"
