"""Options as a user spells them, and which layers a demand touches."""

from __future__ import annotations

import pytest

from attnctl.exits import InputError
from attnctl.layer import Options
from attnctl.model.spec import ModelSpec
from attnctl.registry import Broken, Registry, load
from attnctl.selection.options import backend_name, read_options, scoped, unheard
from tests.layer_factory import group

REGISTRY = load()


@pytest.mark.parametrize(
    ("word", "dtype"),
    [("bf16", "bfloat16"), ("torch.half", "float16"), ("FP32", "float32"), ("auto", None)],
)
def test_dtypes_have_one_name(word: str, dtype: str | None) -> None:
    """Every common spelling gives the same dtype."""
    assert read_options(REGISTRY, dtype=word).dtype == dtype


@pytest.mark.parametrize(
    ("word", "dtype"), [("bf16", "bfloat16"), ("FP8_E4M3", "fp8_e4m3"), ("auto", "auto")]
)
def test_cache_dtypes_have_one_name(word: str, dtype: str) -> None:
    """Cache dtypes know the short names of dtypes, and their own."""
    assert read_options(REGISTRY, kv_cache_dtype=word).kv_cache_dtype == dtype


@pytest.mark.parametrize("word", ["flash_attn", "FLASH-ATTN", " Flash_Attn "])
def test_backends_are_found_however_they_are_written(word: str) -> None:
    """Case, dashes and blanks do not count."""
    assert backend_name(word, REGISTRY) == "FLASH_ATTN"


def test_a_broken_backend_is_named_with_its_error() -> None:
    """A demand for a declaration that did not load says why it did not."""
    registry = Registry(REGISTRY.backends, (Broken("shiny", "shiny-pkg", "ImportError: no"),))
    with pytest.raises(InputError, match=r"shiny-pkg.*ImportError: no"):
        backend_name("SHINY", registry)


def test_demands_are_read_by_kind() -> None:
    """KIND=NAME is for one kind, NAME for all."""
    options = read_options(REGISTRY, backend=["sliding=triton_attn", "FLASH_ATTN"])
    assert options.requested("sliding") == "TRITON_ATTN"
    assert options.requested("full") == "FLASH_ATTN"


def test_a_demand_is_narrowed_to_what_the_backend_computes() -> None:
    """A demand without a kind leaves layers of another operation to their own order."""
    spec = ModelSpec(model_type="x", groups=(group("full"), group("mamba2", layers=(2,))))
    options = scoped(read_options(REGISTRY, backend=["FLASH_ATTN"]), spec, REGISTRY)
    assert options.requested("full") == "FLASH_ATTN"
    assert options.requested("mamba2") is None


def test_a_demand_that_fits_no_layer_stays_a_demand() -> None:
    """A backend for other models is demanded of every layer, and so unmet."""
    spec = ModelSpec(model_type="x", groups=(group("full"),))
    options = scoped(read_options(REGISTRY, backend=["FLASHMLA"]), spec, REGISTRY)
    assert options.requested("full") == "FLASHMLA"


def test_a_demand_for_a_kind_goes_before_one_for_all() -> None:
    """Narrowing keeps what was said about one kind."""
    spec = ModelSpec(model_type="x", groups=(group("full"), group("sliding", layers=(2,))))
    words = ["FLASH_ATTN", "sliding=TRITON_ATTN"]
    options = scoped(read_options(REGISTRY, backend=words), spec, REGISTRY)
    assert options.requested("full") == "FLASH_ATTN"
    assert options.requested("sliding") == "TRITON_ATTN"


def test_nothing_said_is_the_default() -> None:
    """No option gives Options()."""
    assert read_options(REGISTRY) == Options()


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (["mla=FLASHMLA"], ["--backend mla=FLASHMLA: the model has no mla layers, only full"]),
        (["full=FLASH_ATTN", "FLASHMLA"], ["--backend FLASHMLA: no layer of the model is left"]),
        (["full=FLASHMLA"], []),
        (["FLASHMLA"], []),
        (["full=FLASH_ATTN", "FLASH_ATTN"], []),
        (["full=FLASH_ATTN", "gdn=GDN_ATTN"], ["--backend gdn=GDN_ATTN: the model has no gdn"]),
    ],
)
def test_a_demand_that_no_layer_carries_is_said(words: list[str], sentences: list[str]) -> None:
    """Each demand reaches a layer, or a sentence says that it does not."""
    spec = ModelSpec(model_type="x", groups=(group("full"), group("none", layers=(2,))))
    asked = read_options(REGISTRY, backend=words)
    found = unheard(asked, scoped(asked, spec, REGISTRY), spec)
    assert len(found) == len(sentences)
    assert all(one.startswith(start) for one, start in zip(found, sentences, strict=True))


def test_names_of_an_engine_are_taken_where_it_is_asked() -> None:
    """CUTLASS_MLA is vLLM's alone: known to its table, unknown without; states are not its."""
    options = read_options(REGISTRY, backend=["cutlass-mla"], engine_backends=["CUTLASS_MLA"])
    spec = ModelSpec(model_type="x", groups=(group("full"), group("mamba2", layers=(2,))))
    narrowed = scoped(options, spec, REGISTRY)
    assert narrowed.requested("full") == "CUTLASS_MLA"
    assert narrowed.requested("mamba2") is None
    with pytest.raises(InputError, match="cutlass-mla"):
        read_options(REGISTRY, backend=["cutlass-mla"])


def test_a_block_size_is_a_number_or_the_same_for_all_layers() -> None:
    """What is neither is refused in one sentence, whatever its length."""
    fixed, same = (read_options(REGISTRY, block_size=word) for word in ("128", "same"))
    assert (fixed.block_size, fixed.one_block_size) == (128, False)
    assert (same.block_size, same.one_block_size) == (None, True)
    for word, says in (("one", "whole number, or same"), ("0", "1 or more"), ("9" * 40, "at most")):
        with pytest.raises(InputError, match=says):
            read_options(REGISTRY, block_size=word)
