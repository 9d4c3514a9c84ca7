"""Which NVIDIA GPUs there are, which of them CUDA can use, and which the mask leaves."""

from __future__ import annotations

import msgspec

from attnctl.probe.answers import (
    CudaAnswer,
    CudaGpu,
    NvmlAnswer,
    NvmlGpu,
    reason,
    silence,
    works,
)
from attnctl.probe.cuda_findings import Cuda, Nvml, not_in_cuda
from attnctl.probe.cuda_presence import Presence
from attnctl.probe.cuda_sources import CUDA, Sources, bus_of, in_mig_mode, uuid_of
from attnctl.probe.host import Host, HostError, env
from attnctl.probe.ledger import Ledger
from attnctl.probe.pci import bus_id
from attnctl.probe.visibility import CUDA_NAMES, Visible, cuda_visible

# failures of the CUDA child that leave open whether CUDA would work
_OPEN = ("timeout", "unrecorded", "garbled")


def listed(seen: Presence, nvml: Nvml, cuda: Cuda) -> list[Sources]:
    """One entry per GPU, from the best list of GPUs that there is: NVML's, CUDA's, the kernel's."""
    nvml_gpus = nvml.gpus if isinstance(nvml, NvmlAnswer) else ()
    cuda_gpus = cuda.gpus if isinstance(cuda, CudaAnswer) else ()
    if nvml_gpus:
        pairs = [(gpu, _partner(gpu, nvml_gpus, cuda_gpus)) for gpu in nvml_gpus]
        return [_sourced(seen, nvml, cuda, *pair) for pair in pairs]
    if cuda_gpus:
        return [_sourced(seen, nvml, cuda, None, gpu) for gpu in cuda_gpus]
    return [_sourced(seen, nvml, cuda, None, None, bus) for bus in _known_buses(seen)]


def usable(ledger: Ledger, index: int, sources: Sources, nvml: Nvml, cuda: Cuda) -> bool:
    """Whether kernels could run on a GPU, as far as can be known; the fact says how it is known."""
    path = f"nvidia.gpus.{index}.visible"
    broken = sources.nvml is not None and bool(sources.nvml.error)
    if isinstance(cuda, HostError) and cuda.kind in _OPEN and works(nvml):
        ledger.missing(path, CUDA, cuda.detail, "timeout" if cuda.kind == "timeout" else "unknown")
        return not broken
    if not works(cuda):
        ledger.missing(path, CUDA, reason(cuda), "absent")
        return False
    # in MIG mode CUDA lists one instance of one GPU: its list says nothing about the others
    mig = isinstance(nvml, NvmlAnswer) and any(map(in_mig_mode, nvml.gpus))
    if sources.cuda is not None or (mig and not broken and _has_instances(sources)):
        ledger.known(path, CUDA)
        return True
    ledger.missing(path, CUDA, "not in CUDA's list of GPUs", "absent")
    if not mig and not broken:
        ledger.findings.append(not_in_cuda(bus_of(sources) or f"GPU {index}"))
    return False


def masked(host: Host, usable_gpus: list[Sources]) -> Visible:
    """What CUDA_VISIBLE_DEVICES leaves of the GPUs that CUDA can use, which stand in its order."""
    environment = {}
    for name in CUDA_NAMES:
        try:
            environment[name] = env(host, name)
        except HostError:
            environment[name] = None
    instances = [
        (instance.uuid.value, at)
        for at, sources in enumerate(usable_gpus)
        if sources.nvml is not None
        for instance in sources.nvml.mig
        if instance.uuid.value
    ]
    names = [sources.nvml.name.value if sources.nvml else None for sources in usable_gpus]
    return cuda_visible(environment, [uuid_of(gpu) for gpu in usable_gpus], instances, names)


def cuda_order(cuda: Cuda, sources: Sources) -> int:
    """The place of a GPU in CUDA's own list; 0 where it is in none, which keeps NVML's order."""
    gpus = cuda.gpus if isinstance(cuda, CudaAnswer) else ()
    return next((at for at, gpu in enumerate(gpus) if gpu is sources.cuda), 0)


def _has_instances(sources: Sources) -> bool:
    return sources.nvml is not None and (not in_mig_mode(sources.nvml) or bool(sources.nvml.mig))


def _known_buses(seen: Presence) -> list[str]:
    """GPUs that only the kernel or the bus knows."""
    kernel = (gpu.bus_id for gpu in seen.kernel_gpus)
    return sorted(dict.fromkeys([*kernel, *(device.bus_id for device in seen.devices)]))


def _partner(gpu: NvmlGpu, nvml: tuple[NvmlGpu, ...], cuda: tuple[CudaGpu, ...]) -> CudaGpu | None:
    """The same GPU in CUDA's list: by bus id, by UUID, or because each list has only one."""
    bus = bus_id(gpu.bus_id.value)
    for other in cuda:
        if bus is not None and bus == bus_id(other.bus_id.value):
            return other
        if gpu.uuid.value and gpu.uuid.value == other.uuid.value:
            return other
    return cuda[0] if len(nvml) == len(cuda) == 1 else None


def _sourced(
    seen: Presence,
    nvml: Nvml,
    cuda: Cuda,
    nvml_gpu: NvmlGpu | None,
    cuda_gpu: CudaGpu | None,
    bus: str | None = None,
) -> Sources:
    sources = Sources(
        nvml_gpu,
        silence(nvml),
        cuda_gpu,
        silence(cuda),
        instance=nvml_gpu.mig[0] if nvml_gpu and in_mig_mode(nvml_gpu) and nvml_gpu.mig else None,
        tegra=seen.tegra and nvml_gpu is None,
    )
    bus = bus or bus_of(sources)
    kernel = next((gpu for gpu in seen.kernel_gpus if gpu.bus_id == bus), None)
    device = next((device for device in seen.devices if device.bus_id == bus), None)
    return msgspec.structs.replace(sources, kernel=kernel, pci=device)
