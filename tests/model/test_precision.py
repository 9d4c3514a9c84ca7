"""Number formats of the weights, the KV cache and the states."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.exits import InputError
from tests.model.configs import decoder, read


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ({"dtype": "bfloat16", "torch_dtype": None}, "bfloat16"),
        ({"torch_dtype": "torch.float16"}, "float16"),
        ({"torch_dtype": "half"}, "float16"),
        ({"dtype": "bf16"}, "bfloat16"),
        ({"torch_dtype": "float"}, "float32"),
        ({"dtype": "auto"}, None),
        ({}, None),
    ],
)
def test_the_dtype_under_each_spelling(keys: dict[str, Any], dtype: str | None) -> None:
    """None where the file does not say."""
    assert read(decoder(**keys)).dtype == dtype


def test_the_new_key_wins_over_the_old_one_and_the_conflict_is_noted() -> None:
    """dtype is what transformers 5 writes."""
    spec = read(decoder(dtype="float16", torch_dtype="bfloat16"))
    assert (spec.dtype, spec.dtype_source) == ("float16", "dtype")
    assert "dtype float16 wins over torch_dtype bfloat16" in spec.notes


def test_the_outer_dtype_wins_and_the_inner_one_serves_where_there_is_none() -> None:
    """Wrappers keep it at either level; sections that are no text model have no say."""
    inner = {**decoder(), "dtype": "float16"}
    outer = read({"model_type": "w", "dtype": "bfloat16", "text_config": inner})
    within = read({"model_type": "w", "text_config": inner, "attn_config": {"torch_dtype": None}})
    assert (outer.dtype, outer.dtype_source) == ("bfloat16", "dtype")
    assert (within.dtype, within.dtype_source) == ("float16", "text_config.dtype")


def test_a_dtype_that_is_no_name_is_refused() -> None:
    """A number under dtype is a broken file."""
    with pytest.raises(InputError, match="dtype is 16; a dtype name"):
        read(decoder(dtype=16))


QUARK = {"*k_proj": {"weight": {"dtype": "int4"}, "output_tensors": {"dtype": "fp8_e4m3"}}}


@pytest.mark.parametrize(
    ("section", "dtype"),
    [
        ({"quant_method": "awq", "bits": 4}, None),
        ({"quant_method": "fp8", "fmt": "e4m3"}, None),
        ({"kv_cache_scheme": None}, None),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
        ({"kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "fp4"),
        # Quark: which outputs go to the cache stands in one place or in another
        ({"export": {"kv_cache_group": ["*k_proj"]}, "layer_quant_config": QUARK}, "fp8"),
        ({"export": {"kv_cache_group": []}, "layer_quant_config": QUARK}, None),
        ({"kv_cache_quant_config": QUARK}, "fp8"),
        ({"kv_cache_quant_config": {}}, None),
        ({"kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        ({"export": {"kv_cache_group": ["*k_proj"]},
          "layer_quant_config": {"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}}}, "fp8"),
        ({"export": {"kv_cache_group": []}}, None),
    ],
)  # fmt: skip
def test_the_kv_format_in_each_kind_of_quantization_section(
    section: dict[str, Any], dtype: str | None
) -> None:
    """Weights alone say nothing about the cache."""
    assert read(decoder(quantization_config=section)).kv_cache_dtype_from_checkpoint == dtype


@pytest.mark.parametrize(("algorithm", "dtype"), [("FP8", "fp8"), (None, None), ("NONE", None)])
def test_the_sidecar_may_state_the_kv_format(algorithm: str | None, dtype: str | None) -> None:
    """Its quant_algo is about weights."""
    side = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": algorithm}}
    spec = read({**decoder(), "_sidecar_hf_quant_config.json": side})
    assert spec.kv_cache_dtype_from_checkpoint == dtype
    if dtype is not None:
        assert spec.kv_cache_dtype_source == (
            "hf_quant_config.json.quantization.kv_cache_quant_algo"
        )


def test_a_section_inside_the_text_model_is_read() -> None:
    """Wrappers may keep it there."""
    section = {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    spec = read({"model_type": "w", "text_config": {**decoder(), "quantization_config": section}})
    assert spec.kv_cache_dtype_from_checkpoint == "fp8"
    assert spec.kv_cache_dtype_source == "text_config.quantization_config.kv_cache_scheme"
