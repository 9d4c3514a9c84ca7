"""The registry's requirements against what vLLM 0.33 was recorded to accept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnctl.layer import KV_DTYPES, Options, layer_of
from attnctl.machine import Machine
from attnctl.model.spec import Indexer, LayerGroup, Mla, ModelSpec
from attnctl.registry import Registry, load
from attnctl.select import select
from tests import machine_factory as box

CASES = Path("../shared/cases/vllm_0_33_picks.jsonl")

# options of vLLM's that no layer of ours has
FOREIGN = {
    *("use_non_causal", "dcp", "pcp", "batch_invariant", "per_head_scales", "use_kv_connector"),
}

CUDA_PACKAGES = {
    "full": box.ALL["cuda"],
    "pip_offline": ("torch", "triton", "vllm", "flashinfer"),
    "bare": ("torch", "triton", "vllm"),
    "noext": ("torch", "triton"),
}


def stricter(case: dict[str, Any], name: str) -> bool:
    """True where this registry refuses what 0.33's gate lets through and its kernel then fails."""
    config, arch, platform = case["config"], case["arch"], case["platform"]
    size, fp8 = config["head_size"], config["kv_cache_dtype"].startswith("fp8")
    return any(
        (
            # converts e4m3 in Triton, which refuses to below 8.9 (and e5m2 below 8.0)
            platform == "cuda" and fp8 and float(arch) < 8.9 and name.startswith("TRITON"),
            # FA2 is built for head sizes up to 256
            name == "FLASH_ATTN" and platform == "cuda" and size > 256 and arch[:3] == "10.",
            # FlashInfer's sparse kernels come with FlashInfer
            name == "FLASHINFER_MLA_SPARSE" and case["installed"] in ("bare", "noext"),
            # 0.33 takes AITER's sparse kernels at their word, wherever and even without AITER
            name == "ROCM_AITER_MLA_SPARSE"
            and not (arch.startswith(("gfx94", "gfx95")) and case["installed"] == "aiter_on"),
            # the smallest tile does not fit 64 KiB
            size == 576 and not config.get("use_mla") and (arch == "7.5" or platform == "rocm"),
            # dropped from the list of encoder-decoder models, which the recorded list precedes
            name == "ROCM_ATTN" and config["model"].get("attn_type", "decoder") != "decoder",
        )
    )


def unchecked(case: dict[str, Any]) -> bool:
    """True where 0.33 asks nothing and takes what it is told: Intel, CPUs, demanded backends."""
    return case["platform"] in ("xpu", "cpu") or "backend" in case["config"]


def read() -> list[dict[str, Any]]:
    if not CASES.exists():
        pytest.fail(f"{CASES} is missing: these tests need the recorded cases beside the checkout")
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [
        case
        for case in cases
        if case["config"]["kv_cache_dtype"] in KV_DTYPES
        and not FOREIGN.intersection(case["config"])
    ]


def machine_of(case: dict[str, Any]) -> Machine:
    platform, arch, installed = case["platform"], case["arch"], case["installed"]
    if platform == "cuda":
        major, minor = map(int, arch.split("."))
        return box.cuda(major, minor, packages=CUDA_PACKAGES[installed])
    if platform == "rocm":
        packages = box.ALL["rocm"] if installed == "aiter_on" else ("torch", "triton", "vllm")
        return box.rocm(arch, packages=packages)
    return box.xpu() if platform == "xpu" else box.cpu()


def group_of(config: dict[str, Any]) -> LayerGroup:
    size, model = config["head_size"], config["model"]
    if config.get("use_mla"):
        return _latent(config)
    two_stacks = model.get("attn_type") == "encoder_decoder"
    kind, stack = {
        "decoder": ("full", "decoder" if two_stacks else None),
        "encoder": ("encoder_self", "encoder"),
        "encoder_only": ("encoder_self", None),
        "encoder_decoder": ("cross", "decoder"),
    }[config.get("attn_type", "decoder")]
    return LayerGroup(
        kind="sliding" if config.get("has_sliding_window") and kind == "full" else kind,
        layers=(0,),
        stack=stack,
        head_size=size,
        num_heads=model["num_heads"],
        num_kv_heads=model["num_kv_heads"],
        window=1024 if config.get("has_sliding_window") else None,
        sinks=config.get("has_sink", False),
        prefix_lm=config.get("use_mm_prefix", False),
    )


def _latent(config: dict[str, Any]) -> LayerGroup:
    size, hf = config["head_size"], config["model"]["hf"]
    lora = hf.get("kv_lora_rank", min(size, 512))
    mla = Mla(
        kv_lora_rank=lora,
        qk_rope_head_dim=hf.get("qk_rope_head_dim", size - lora),
        qk_nope_head_dim=hf.get("qk_nope_head_dim", 128),
        v_head_dim=hf.get("v_head_dim", 128),
        prefill_head_size=192,
        prefill_head_size_v=128,
    )
    topk = hf.get("index_topk")
    return LayerGroup(
        kind="mla_sparse" if config.get("use_sparse") else "mla",
        layers=(0,),
        head_size=size,
        head_size_v=lora,
        num_heads=config.get("num_heads"),
        num_kv_heads=1,
        sinks=config.get("has_sink", False),
        mla=mla,
        indexer=Indexer(heads=64, head_dim=128, topk=topk) if topk else None,
    )


def eligible(case: dict[str, Any], registry: Registry) -> list[str]:
    """The backends that meet every requirement, in the order they are tried."""
    config = case["config"]
    options = Options(
        dtype=config["dtype"],
        kv_cache_dtype=config["kv_cache_dtype"],
        block_size=config.get("block_size"),
    )
    group = group_of(config)
    spec = ModelSpec(model_type="recorded", groups=(group,))
    decision = select(layer_of(spec, group, options), machine_of(case), registry, options)
    return [candidate.name for candidate in decision.candidates if candidate.ok]


def test_what_vllm_accepts_is_eligible_here() -> None:
    """Every backend that 0.33 listed and did not reject meets the requirements here too."""
    registry = load()
    names = {backend.name for backend in registry.backends}
    checked, refused = 0, []
    for case in read():
        if unchecked(case):
            continue
        accepted = names & (set(case["priority"] or ()) - set(case["rejected"] or ()))
        here = eligible(case, registry)
        checked += len(accepted)
        refused += [
            (case["id"], name, case["arch"], case["config"])
            for name in sorted(accepted)
            if name not in here and not stricter(case, name)
        ]
    assert refused == []
    assert checked > 500


def test_where_vllm_validates_the_first_eligible_backend_is_its_pick() -> None:
    """With everything installed, both orders put the same backend first on NVIDIA and AMD."""
    registry = load()
    names = {backend.name for backend in registry.backends}
    compared, differing = 0, []
    for case in read():
        pick, config = case["pick"], case["config"]
        if case["installed"] not in ("full", "aiter_on") or unchecked(case):
            continue
        if pick not in names or stricter(case, pick):
            continue
        compared += 1
        first = (eligible(case, registry) or [None])[0]
        if first != pick:
            differing.append((case["id"], pick, first, case["arch"], config))
    assert differing == []
    assert compared > 150
