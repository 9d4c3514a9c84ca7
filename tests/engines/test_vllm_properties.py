"""vLLM's selector: what it promises whatever the layer and the machine."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from attnctl.engines import vllm
from tests.engines.shapes import R1

SLUGS = {
    "head_size",
    "dtype",
    "kv_cache_dtype",
    "block_size",
    "compute_capability",
    "attn_type",
    "sinks",
    "mm_prefix",
    "sliding_window",
    "rswa",
    "non_causal",
    "batch_invariant",
    "kv_connector",
    "pcp",
    "dcp",
    "per_head_scales",
    "adaptive_verification",
    "sparse",
    "not_sparse",
    "is_mla",
    "not_mla",
    "kernel_missing",
    "package_missing",
    "package_version",
    "index_topk",
    "mla_dims",
    "head_size_512",
}
PLACES = [
    *(("cuda", arch, "full") for arch in ("7.5", "8.0", "8.9", "9.0", "10.0", "10.3", "11.0")),
    *(("cuda", arch, "full") for arch in ("12.0", "12.1")),
    *(("cuda", "9.0", installed) for installed in ("pip_offline", "bare", "noext")),
    *(("cuda", "10.0", installed) for installed in ("pip_offline", "bare")),
    *(
        ("rocm", arch, installed)
        for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
        for installed in ("aiter_on", "aiter_off", "bare")
    ),
]
EVERYWHERE = [
    *PLACES,
    ("xpu", "xpu", "full"),
    *(("cpu", arch, "full") for arch in ("x86-avx2", "x86-avx512", "x86-amx", "aarch64")),
]
KV = ["auto", "bfloat16", "fp8", "fp8_e5m2", "nvfp4", "turboquant_k8v4", "fp8_ds_mla"]
FORCED = ["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "TRITON_MLA", "FLASHMLA", "TORCH_SDPA"]


@st.composite
def layers(draw: st.DrawFn) -> dict[str, Any]:
    is_mla = draw(st.booleans())
    sizes = [320, 512, 576] if is_mla else [16, 64, 80, 128, 192, 256, 512, 576]
    flags = ["has_sink", "use_mm_prefix", "use_non_causal", "batch_invariant", "per_head_scales"]
    config: dict[str, Any] = {
        "head_size": draw(st.sampled_from(sizes)),
        "dtype": draw(st.sampled_from(["float16", "bfloat16", "float32"])),
        "kv_cache_dtype": draw(st.sampled_from(KV)),
        "block_size": draw(st.sampled_from([None, 1, 8, 16, 32, 64, 128])),
        "use_mla": is_mla,
        "use_sparse": is_mla and draw(st.booleans()),
        "dcp": draw(st.sampled_from([1, 2])),
        "pcp": draw(st.sampled_from([1, 2])),
        "use_kv_connector": draw(st.booleans()),
        "has_sliding_window": not is_mla and draw(st.booleans()),
        "attn_type": "decoder"
        if is_mla
        else draw(st.sampled_from(["decoder", "encoder", "encoder_only", "encoder_decoder"])),
    }
    config |= {flag: draw(st.booleans()) for flag in flags}
    if is_mla:
        topk = draw(st.sampled_from([None, 1000, 2048]))
        config["num_heads"] = draw(st.sampled_from([None, 8, 16, 64, 128]))
        config["model"] = {"hf": R1 if topk is None else {**R1, "index_topk": topk}}
    return config


@given(place=st.sampled_from(PLACES), config=layers())
def test_the_first_candidate_without_a_reason_wins(
    place: tuple[str, str, str], config: dict[str, Any]
) -> None:
    """Every candidate is validated: reasons for all but the valid, the first valid one is it."""
    found = vllm.pick(*place, config)
    valid = [name for name in found.priority if name not in found.rejected]
    assert set(found.rejected) <= set(found.priority)
    assert len(set(found.priority)) == len(found.priority)
    assert found.pick == (valid[0] if valid else None)
    assert found.error == (None if valid else "ValueError")
    assert all(slugs and slugs <= SLUGS for slugs in found.rejected.values())


@given(place=st.sampled_from(PLACES), config=layers(), name=st.sampled_from(FORCED))
def test_a_forced_backend_is_taken_or_refused_and_never_replaced(
    place: tuple[str, str, str], config: dict[str, Any], name: str
) -> None:
    """The automatic list's reasons stay what they are; a packed cache on ROCm alone falls back."""
    automatic = vllm.pick(*place, config)
    forced = vllm.pick(*place, {**config, "backend": name})
    assert forced.rejected == automatic.rejected
    if place[0] == "rocm" and config["kv_cache_dtype"].startswith("turboquant"):
        assert forced.pick in (None, name, automatic.pick)
    else:
        assert forced.pick in (None, name)
    if name in forced.priority and name not in forced.rejected:
        assert forced.pick == name


@given(
    place=st.sampled_from(PLACES),
    config=layers(),
    more=st.sampled_from([{"pcp": 2}, {"per_head_scales": True}, {"block_size": 8}]),
)
def test_asking_for_more_never_removes_a_reason(
    place: tuple[str, str, str], config: dict[str, Any], more: dict[str, Any]
) -> None:
    """A layer that demands one more thing is rejected for at least what it was rejected for."""
    if any(config[key] not in (None, False, 1) for key in more):
        return
    before, after = vllm.pick(*place, config), vllm.pick(*place, {**config, **more})
    assert all(slugs <= after.rejected[name] for name, slugs in before.rejected.items())


@given(place=st.sampled_from(EVERYWHERE), config=layers())
def test_there_is_always_a_pick_or_an_error(
    place: tuple[str, str, str], config: dict[str, Any]
) -> None:
    """Never both, never neither, and errors are of the classes that vLLM raises."""
    found = vllm.pick(*place, config)
    assert (found.pick is None) == (found.error is not None)
    assert found.error in (None, "ValueError", "NotImplementedError")
