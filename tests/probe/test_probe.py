"""The whole probe: real, recorded and invented machines."""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from attnctl.machine import Cpu, Machine
from attnctl.probe import probe
from attnctl.probe.packages import KEYS
from attnctl.probe.realhost import RealHost
from attnctl.probe.redact import redact_tape
from attnctl.probe.tape import Recorder, Replay, read_tape, write_tape
from tests.probe.recorded import TAPES, complaints, machine, tape

ROOT = Path(__file__).parents[2]


def test_the_recorded_virtual_machine_reads_as_it_was():
    """A Zen 3 guest with two processors and no GPU, in a cgroup of version 1."""
    found = machine("zen3-vm")
    assert (found.cpu.microarchitecture, found.cpu.isa_level) == ("zen3", "x86-64-v3")
    assert found.cpu.isa == ("sse4_2", "avx", "f16c", "fma", "avx2")
    assert (found.cpu.sockets, found.cpu.cores, found.cpu.threads) == (1, 2, 2)
    assert (found.cpu.usable, found.cpu.quota, found.cpu.memory_limit_bytes) == (2, None, None)
    assert [cache.size_bytes for cache in found.cpu.caches] == [32768, 32768, 524288, 33554432]
    assert (found.platform, found.origin, found.findings) == ("cpu", "replayed", ())
    assert {found.nvidia.status, found.amd.status, found.intel.status} == {"absent"}


def test_a_processor_with_tiles_has_them_usable():
    """Sapphire Rapids, where the kernel grants the permission and CPUID has a palette."""
    found = machine("sapphire-rapids-amx")
    assert found.cpu.microarchitecture == "sapphirerapids"
    assert {"amx_tile", "amx_bf16", "avx512_bf16", "avx512_fp16"} <= set(found.cpu.isa)
    assert (found.cpu.sockets, found.cpu.cores, found.cpu.threads) == (1, 4, 8)
    assert found.packages["torch"].version == "2.13.0+cpu"
    assert "AMX" in found.facts["cpu.isa"].source


def test_an_arm_server_has_its_vector_length():
    """Graviton 4: Armv9, SVE2 of 128 bits, cores counted through sysfs."""
    found = machine("graviton4")
    assert (found.cpu.microarchitecture, found.cpu.isa_level) == ("neoverse_v2", "armv9.0a")
    assert {"neon", "sve2", "bf16", "i8mm"} <= set(found.cpu.isa)
    assert (found.cpu.sve_bits, found.cpu.sockets, found.cpu.cores) == (128, 1, 4)
    assert found.facts["cpu.model"].status == "absent"


def test_a_container_has_what_its_cgroup_leaves():
    """One and a half cores of sixteen, 4 GiB of which 3 are free."""
    found = machine("container-quota")
    assert (found.cpu.threads, found.cpu.quota, found.cpu.usable) == (16, 1.5, 1)
    assert found.cpu.memory_limit_bytes == 4 << 30
    assert found.cpu.memory_available_bytes == 3 << 30
    assert found.os["container"] == "docker"


def test_wsl_and_riscv_are_named():
    """Two more systems that are not a plain x86 Linux."""
    assert machine("wsl2-cpu").os["wsl"] == "2"
    riscv = machine("riscv-v").cpu
    assert (riscv.isa_level, riscv.isa[:3]) == ("rv64gcv", ("v", "zfh", "zvfh"))


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.name.partition(".")[0])
def test_every_leaf_of_every_machine_has_a_source_or_a_reason(path):
    """No fact is silently missing, no part of the probe broke, and JSON brings it all back."""
    found = probe(Replay(read_tape(path.read_bytes(), path.name)))
    assert complaints(found) == []
    for leaf in set(Cpu.__struct_fields__) - {"status", "source", "isa_unusable"}:
        fact = found.facts[f"cpu.{leaf}"]
        value = getattr(found.cpu, leaf)
        assert (fact.status == "ok") is (value not in (None, ())), leaf
        assert fact.source
        assert fact.reason or fact.status == "ok"
    assert tuple(found.packages) == KEYS
    assert msgspec.json.decode(msgspec.json.encode(found), type=Machine) == found


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.name.partition(".")[0])
def test_a_tape_without_names_reads_as_before(path):
    """Redaction changes nothing that is not a name or a path."""
    before = read_tape(path.read_bytes(), path.name)
    after = read_tape(write_tape(redact_tape(before)), path.name)
    one, two = probe(Replay(before)), probe(Replay(after))
    assert (one.cpu, one.os.get("container"), one.findings) == (
        two.cpu,
        two.os.get("container"),
        two.findings,
    )
    versions = [{key: p.version for key, p in found.packages.items()} for found in (one, two)]
    assert versions[0] == versions[1]
    for vendor in ("nvidia", "amd", "intel"):
        assert nameless(getattr(one, vendor)) == nameless(getattr(two, vendor))


def nameless(vendor):
    """The GPUs of a vendor without what tells two of one kind apart."""
    return [msgspec.structs.replace(gpu, uuid=None, mig=len(gpu.mig)) for gpu in vendor.gpus]


def test_this_machine_replays_as_it_was_probed():
    """What the recorder kept is all that the probe needs."""
    recorder = Recorder(RealHost())
    live = probe(recorder)
    again = probe(Replay(read_tape(write_tape(recorder.tape()))))
    assert live.origin == "probed"
    assert set(live.timings_ms) >= {"cpu", "limits", "os", "nvidia", "amd", "intel", "packages"}
    assert again == msgspec.structs.replace(live, origin="replayed", timings_ms={})


class Watched:
    """The real host, with a list of what it was asked."""

    def __init__(self):
        self.host = RealHost()
        self.asked = []

    def ask(self, op, *args):
        self.asked.append((op, *args))
        return self.host.ask(op, *args)


def test_a_second_probe_through_one_recorder_asks_nothing_more():
    """The recorder is the cache that a caller may keep."""
    watched = Watched()
    recorder = Recorder(watched)
    first = probe(recorder)
    count = len(watched.asked)
    assert probe(recorder).cpu == first.cpu
    assert len(watched.asked) == count


def test_a_machine_without_gpu_and_tiles_starts_no_child():
    """Daemons may not start processes; reading a processor needs none, and no time."""
    asked = []

    class Forbidding(Replay):
        def ask(self, op, *args):
            asked.append(op)
            assert op != "child"
            return super().ask(op, *args)

    started = time.perf_counter()
    found = probe(Forbidding(tape("zen3-vm")))
    assert time.perf_counter() - started < 0.3
    assert complaints(found) == []
    assert "child" not in asked


def test_only_named_variables_are_read():
    """No secret of the environment can reach a report that never asked for it."""
    watched = Watched()
    probe(watched)
    names = {args[0] for op, *args in watched.asked if op == "env"}
    assert names <= {
        "CC",
        "CUDA_DEVICE_ORDER",
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "HIP_VISIBLE_DEVICES",
        "HOME",
        "KUBERNETES_SERVICE_HOST",
        "LD_LIBRARY_PATH",
        "ROCM_HOME",
        "ROCM_PATH",
        "ROCR_VISIBLE_DEVICES",
        "TRITON_CACHE_DIR",
        "TRITON_HOME",
        "TRITON_PTXAS_BLACKWELL_PATH",
        "TRITON_PTXAS_PATH",
        "ZE_AFFINITY_MASK",
        "ZE_FLAT_DEVICE_HIERARCHY",
        "container",
    }


def test_the_host_name_is_not_in_a_recorded_tape():
    """Neither by name nor through the kernel's version."""
    recorder = Recorder(RealHost())
    probe(recorder)
    node = os.uname().nodename
    asked = [entry.ask for entry in recorder.tape().entries]
    assert ["read", "/etc/hostname"] not in asked
    assert ["read", "/proc/sys/kernel/hostname"] not in asked
    assert set(recorder.ask("uname")) == {"system", "release", "version", "machine"}
    assert all(node not in str(answer) for answer in recorder.ask("uname").values())


def test_no_heavy_package_is_imported():
    """A fresh interpreter probes with nothing but the standard library and msgspec."""
    heavy = "torch triton numpy transformers pydantic pynvml amdsmi subprocess importlib.metadata"
    code = (
        "import sys; from attnctl.probe import probe; probe(); "
        f"print([name for name in {heavy.split()} if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
