"""Broken and strange configs give a spec or one sentence, never a traceback."""

from __future__ import annotations

import copy
import io
import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.exits import InputError
from attnctl.model import ModelSpec, read_model
from tests.model.configs import LATENT, decoder

SEEDS: list[dict[str, Any]] = [
    decoder("llama", head_dim=None, sliding_window=8, torch_dtype="bfloat16"),
    decoder("qwen2", use_sliding_window=True, max_window_layers=3, sliding_window=8),
    decoder("gemma3_text", sliding_window=8, query_pre_attn_scalar=100, dtype="float16"),
    decoder("gemma4_text", num_kv_shared_layers=2, sliding_window=8, global_head_dim=64),
    decoder("deepseek_v32", index_topk=8, index_n_heads=2, index_head_dim=8, **LATENT),
    decoder("glm_moe_dsa", index_topk_freq=2, index_topk_pattern="FSFSFS", **LATENT),
    decoder("deepseek_v4", compress_ratios=[0, 4, 128, 4, 128, 0], sliding_window=8, head_dim=32),
    decoder("nemotron_h", hybrid_override_pattern="M*-EM*", mamba_num_heads=4, mamba_head_dim=8),
    decoder("nemotron-nas", block_configs=[{"attention": {"n_heads_in_group": 2}}] * 6),
    decoder("jamba", attn_layer_period=2, attn_layer_offset=1, mamba_d_state=4),
    decoder("falcon_h1", mamba_d_head="auto", mamba_n_heads=4, mamba_d_ssm=64),
    decoder("zamba2", hybrid_layer_ids=[1], mamba_headdim=8, num_mem_blocks=2),
    decoder("hymba", kv_reuse_group=[[1, 2]], global_attn_idx=[0], mamba_d_conv=4),
    decoder("kimi_linear", linear_attn_config={"full_attn_layers": [3], "kda_layers": [1, 2]}),
    decoder("minimax_m1", attn_type_list=[0, 1, 0, 1, 0, 1]),
    decoder("mimo_v2", hybrid_layer_pattern=[0, 1, 0, 1, 0, 1], v_head_dim=16),
    decoder("recurrent_gemma", _block_types=["recurrent", "attention"], conv1d_width=4),
    decoder("mpt", attn_config={"alibi": True, "kv_n_heads": 2, "sliding_window_size": -1}),
    decoder("falcon", multi_query=True, num_kv_heads=5, alibi=False),
    decoder("step3p5", attention_other_setting={"num_attention_heads": 8}),
    decoder("unknown", layer_types=["full_attention", "linear_attention"] * 3),
    decoder("phi3small", dense_attention_every_n_layers=2, blocksparse_block_size=8),
    {"model_type": "wrapper", "text_config": decoder(), "vision_config": {"hidden_size": 8}},
    {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2},
    {"model_type": "t5", "d_model": 64, "num_heads": 4, "d_kv": 16, "num_layers": 2},
    {"model_type": "xlstm", "hidden_size": 64, "num_heads": 4, "num_hidden_layers": 2},
    {"model_type": "rwkv5", "hidden_size": 64, "head_size": 16, "num_hidden_layers": 2},
    {**decoder(), "quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}},
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.sampled_from([10**9, 10**30, -1, 0, 2**31, float("inf"), float("nan"), 0.5, 1e300])
    | st.text(max_size=6)
    | st.sampled_from(["auto", "M*-", "LLG", "full_attention", "float16", "FP8"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
names = st.sampled_from(sorted({name for seed in SEEDS for name in seed}))


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A seed with a few keys changed, dropped or borrowed from other families."""
    config = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        place = config
        nested = [key for key, value in config.items() if isinstance(value, dict) and value]
        if nested and draw(st.booleans()):
            place = config[draw(st.sampled_from(nested))]
        key = draw(st.sampled_from(sorted(place)) if place and draw(st.booleans()) else names)
        if draw(st.integers(0, 5)) == 0:
            place.pop(key, None)
        else:
            place[key] = draw(values)
    return config


def outcome(config: Any, stdin: bytes | None = None) -> ModelSpec | str:
    try:
        if stdin is not None:
            return read_model("-", stdin=io.BytesIO(stdin))
        return read_model(config)
    except InputError as refused:
        return str(refused)


def check(found: ModelSpec | str) -> None:
    if isinstance(found, str):
        assert found
        assert "\n" not in found
        assert len(found) < 500
        return
    assert found.groups
    assert msgspec.json.decode(msgspec.json.encode(found), type=ModelSpec, strict=False)
    for group in found.groups:
        assert list(group.layers) == sorted(set(group.layers))
        assert all(size is None or size > 0 for size in (group.head_size, group.num_heads))
        assert (group.window or 1) > 0


@settings(max_examples=600, deadline=None)
@given(mutated())
def test_a_mutated_config_gives_a_spec_or_one_sentence(config: dict[str, Any]) -> None:
    """Whatever the value under whatever key."""
    check(outcome(config))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(names | st.text(max_size=8), values, max_size=8))
def test_an_arbitrary_object_gives_a_spec_or_one_sentence(config: dict[str, Any]) -> None:
    """Keys of every family thrown together."""
    check(outcome(config))


@settings(max_examples=150, deadline=None)
@given(mutated(), st.data())
def test_broken_bytes_give_a_spec_or_one_sentence(
    config: dict[str, Any], data: st.DataObject
) -> None:
    """One byte of the file changed, or its end cut off."""
    raw = bytearray(json.dumps(config).encode())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255))
    check(outcome(None, bytes(raw)))
    check(outcome(None, bytes(raw[:place])))


@settings(max_examples=100, deadline=None)
@given(mutated())
def test_reading_leaves_the_dict_as_it_was(config: dict[str, Any]) -> None:
    """A caller's object is not changed, refused or not."""
    before = json.dumps(config)
    outcome(config)
    assert json.dumps(config) == before
