"""Layers and machines that are invented for vLLM's table to answer."""

from __future__ import annotations

from attnctl.machine import Cpu, Gpu, Machine, Package, Vendor
from attnctl.model.spec import Indexer, LayerGroup, ModelSpec, State
from tests.layer_factory import LATENT

X86 = Cpu(arch="x86_64", isa=("avx2",))
FULL = LayerGroup(kind="full", layers=(3, 7), head_size=256, num_heads=16, num_kv_heads=2)
GDN = LayerGroup(
    kind="gdn",
    layers=(0, 1, 2),
    state=State(
        type="gdn", num_k_heads=16, num_v_heads=32, head_k_dim=128, head_v_dim=128, conv_kernel=4
    ),
)
SPARSE = LayerGroup(
    kind="mla_sparse",
    layers=(0,),
    head_size=576,
    head_size_v=512,
    num_heads=128,
    num_kv_heads=1,
    mla=LATENT,
    indexer=Indexer(heads=64, head_dim=128, topk=2048),
)
DIFFKV = LayerGroup(
    kind="full", layers=(0,), head_size=192, head_size_v=128, num_heads=64, num_kv_heads=4
)
HYBRID = ModelSpec(model_type="invented", groups=(GDN, FULL), dtype="bfloat16")


def packages(*names: str, **versions: str) -> dict[str, Package]:
    known = dict.fromkeys(("vllm", *names)) | versions
    return {n: Package(status="ok", source="test", version=v) for n, v in known.items()}


def nvidia(capability: tuple[int, int], *names: str, **versions: str) -> Machine:
    gpu = Gpu(index=0, arch=f"sm_{capability[0]}{capability[1]}", capability=capability)
    vendor = Vendor(status="ok", gpus=(gpu,))
    return Machine(name="box", nvidia=vendor, cpu=X86, packages=packages(*names, **versions))


def amd(arch: str, *names: str, **versions: str) -> Machine:
    vendor = Vendor(status="ok", gpus=(Gpu(index=0, arch=arch),))
    return Machine(name="box", amd=vendor, cpu=X86, packages=packages(*names, **versions))


def intel() -> Machine:
    vendor = Vendor(status="ok", gpus=(Gpu(index=0, arch="xe2-hpg"),))
    return Machine(name="box", intel=vendor, cpu=X86, packages=packages())


def processor(*isa: str, arch: str = "x86_64") -> Machine:
    return Machine(name="box", cpu=Cpu(arch=arch, isa=isa), packages=packages())
