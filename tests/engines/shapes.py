"""Twenty public models as the layer groups that their config.json states, and two more shapes."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.model.spec import Indexer, LayerGroup, Mla, ModelSpec

R1 = {
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "kv_lora_rank": 512,
}
"""DeepSeek-R1's widths, by the names of its config.json."""


def attention(heads: int, kv_heads: int, size: int, kind: str = "full", **more: Any) -> LayerGroup:
    return msgspec.convert(
        {
            "kind": kind,
            "layers": [1],
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_size": size,
            **more,
        },
        LayerGroup,
    )


def latent(
    heads: int, lora: int, rope: int, nope: int, v: int, topk: int | None = None
) -> LayerGroup:
    widths = Mla(
        kv_lora_rank=lora,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=nope,
        v_head_dim=v,
        prefill_head_size=nope + rope,
        prefill_head_size_v=v,
    )
    indexer = None if topk is None else Indexer(heads=64, head_dim=128, topk=topk)
    return LayerGroup(
        kind="mla" if topk is None else "mla_sparse",
        layers=(1,),
        head_size=lora + rope,
        head_size_v=lora,
        num_heads=heads,
        num_kv_heads=1,
        mla=widths,
        indexer=indexer,
    )


def state(kind: str, **fields: Any) -> LayerGroup:
    return msgspec.convert(
        {"kind": kind, "layers": [0], "state": {"type": kind, **fields}}, LayerGroup
    )


def model(name: str, *groups: LayerGroup) -> ModelSpec:
    return ModelSpec(model_type=name, groups=groups, dtype="bfloat16")


MODELS = (
    model("llama-3.1-8b", attention(32, 8, 128)),
    model("qwen2.5-7b", attention(28, 4, 128)),
    model("mistral-7b-v0.1", attention(32, 8, 128, "sliding", window=4096)),
    model("phi-3-mini-4k", attention(32, 32, 96, "sliding", window=2047)),
    model(
        "gemma-2-9b",
        attention(16, 8, 256, "sliding", window=4096, softcap=50.0),
        attention(16, 8, 256, softcap=50.0),
    ),
    model("llama-4-scout", attention(40, 8, 128, "chunked", chunk=8192), attention(40, 8, 128)),
    model(
        "gpt-oss-20b",
        attention(64, 8, 64, "sliding", window=128, sinks=True),
        attention(64, 8, 64, sinks=True),
    ),
    model("mimo-v2-flash", attention(64, 4, 192, head_size_v=128)),
    model("image prefixes", attention(8, 1, 256, prefix_lm=True)),
    model("deepseek-v3", latent(128, 512, 64, 128, 128)),
    model("deepseek-v3.2", latent(128, 512, 64, 128, 128, topk=2048)),
    model("glm-5", latent(64, 512, 64, 192, 256, topk=2048)),
    model("minicpm3-4b", latent(40, 256, 32, 64, 64)),
    model(
        "kimi-linear-48b",
        latent(32, 512, 64, 128, 128),
        state("kda", num_heads=32, head_dim=128, conv_kernel=4),
    ),
    model(
        "qwen3-next-80b",
        attention(16, 2, 256),
        state(
            "gdn",
            num_k_heads=16,
            num_v_heads=32,
            head_k_dim=128,
            head_v_dim=128,
            conv_kernel=4,
        ),
    ),
    model(
        "jamba-1.5-mini",
        attention(32, 8, 128),
        state("mamba1", inner=8192, state_size=16, conv_kernel=4),
    ),
    model(
        "nemotron-nano-9b",
        attention(40, 8, 128),
        state(
            "mamba2",
            inner=10240,
            num_heads=128,
            head_dim=80,
            state_size=128,
            n_groups=8,
            conv_kernel=4,
        ),
    ),
    model("lfm2-1.2b", attention(32, 8, 64), state("short_conv", conv_state=[2048, 2])),
    model("minimax-text-01", attention(64, 8, 128), state("linear", num_heads=64, head_dim=128)),
    model(
        "whisper-large-v3",
        attention(20, 20, 64, "encoder_self", stack="encoder", notes={"has_decoder": True}),
        attention(20, 20, 64),
        attention(20, 20, 64, "cross"),
    ),
    model("bert-base", attention(12, 12, 64, "encoder_self", stack="encoder")),
    model("heads of 512", attention(8, 2, 512)),
)
