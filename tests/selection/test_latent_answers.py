"""Which backend latent attention gets on six machines, why not the others, and in which form."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from attnctl import machines
from attnctl.layer import Options
from attnctl.machines.assumed import assume
from attnctl.model import read_model
from attnctl.registry import load
from attnctl.render.demands import demands, forms_text
from attnctl.render.plain import plain
from attnctl.render.select import select_view
from attnctl.selection.answer import answer
from attnctl.selection.latent_forms import LatentForms
from attnctl.selection.report import GroupReport, SelectReport

MODELS = Path(__file__).parent.parent / "models"
REGISTRY = load()


@cache
def asked(model: str, machine: str, tp: int = 1) -> SelectReport:
    assumption = assume(machines.load(machine), "usual", REGISTRY)
    spec = read_model(MODELS / f"{model}.json")
    return answer(spec, assumption, REGISTRY, Options(tp=tp))


def first(model: str, machine: str, tp: int = 1) -> GroupReport:
    return asked(model, machine, tp).groups[0]


def why(group: GroupReport) -> str:
    assert group.winner is not None
    return f"{group.winner.why} [{group.winner.evidence}]"


def refused(group: GroupReport) -> dict[str, tuple[str, str]]:
    """What could serve such layers on this platform and does not: wanted and found."""
    return {
        one.name: (one.reasons[0].wanted, one.reasons[0].found)
        for one in group.candidates
        if not one.ok and not one.elsewhere
    }


FLASHMLA = "compute capability 9.x or 10.x (FlashMLA's sparse kernels)"
FLASHINFER = "compute capability 10.x (FlashInfer's sparse latent kernels)"
FIELD = "before TRITON_MLA_SPARSE: the field's order [default]"
ONLY = "the only backend that meets every requirement [only]"

SPARSE = {
    "h100": ("FLASHMLA_SPARSE", FIELD, {"FLASHINFER_MLA_SPARSE": (FLASHINFER, "9.0")}),
    "b200": (
        "FLASHMLA_SPARSE",
        "before FLASHINFER_MLA_SPARSE: more than 16 heads per rank and a plain cache on 10.x take "
        "FlashMLA first [rule]",
        {},
    ),
    "rtx5090": (
        "TRITON_MLA_SPARSE",
        ONLY,
        {"FLASHMLA_SPARSE": (FLASHMLA, "12.0"), "FLASHINFER_MLA_SPARSE": (FLASHINFER, "12.0")},
    ),
    "mi300x": ("ROCM_AITER_MLA_SPARSE", FIELD, {}),
    "max1550": ("XPU_MLA_SPARSE", FIELD, {}),
    "zen3": ("CPU_MLA_SPARSE", ONLY, {}),
}


@pytest.mark.parametrize("model", ["deepseek-v3.2", "glm-moe-dsa"])
@pytest.mark.parametrize("machine", SPARSE)
def test_sparse_attention_gets_each_platforms_own(model: str, machine: str) -> None:
    """The pick, what it stands before and why, and what the others lack here."""
    group = first(model, machine)
    assert (group.pick, why(group), refused(group)) == SPARSE[machine]


def test_few_heads_per_rank_take_flashinfer_on_blackwell() -> None:
    """128 heads over 8 ranks are 16."""
    group = first("deepseek-v3.2", "b200", tp=8)
    assert (group.pick, why(group)) == (
        "FLASHINFER_MLA_SPARSE",
        "before FLASHMLA_SPARSE: 16 heads per rank or fewer on 10.x take FlashInfer first [rule]",
    )


HOPPER = ("compute capability 9.x (FlashAttention 3)", "compute capability 9.x (FlashMLA's dense")
BLACKWELL = "compute capability 10.x (FlashInfer's latent kernels)"

DENSE = {
    "h100": ("FLASH_ATTN_MLA", "before FLASHMLA: the field's order [default]"),
    "b200": (
        "FLASHINFER_MLA",
        "before TRITON_MLA: on 10.x FlashInfer's latent kernels stand first [rule]",
    ),
    "rtx5090": ("TRITON_MLA", ONLY),
    "mi300x": ("ROCM_AITER_MLA", "before TRITON_MLA: the field's order [default]"),
    "max1550": ("FLASH_ATTN_MLA", "before TRITON_MLA: the field's order [default]"),
    "zen3": ("CPU_MLA", ONLY),
}


@pytest.mark.parametrize("model", ["deepseek-v3", "kimi-k2"])
@pytest.mark.parametrize("machine", DENSE)
def test_dense_attention_gets_each_platforms_own(model: str, machine: str) -> None:
    """The pick, and what it stands before."""
    group = first(model, machine)
    assert (group.pick, why(group)) == DENSE[machine]


@pytest.mark.parametrize("model", ["deepseek-v3", "kimi-k2"])
def test_a_consumer_blackwell_says_what_the_libraries_want(model: str) -> None:
    """Three libraries, each with the devices that it is built for."""
    found = refused(first(model, "rtx5090"))
    wanted = dict(zip(("FLASH_ATTN_MLA", "FLASHMLA"), HOPPER, strict=True))
    assert set(found) == {*wanted, "FLASHINFER_MLA"}
    assert found["FLASHINFER_MLA"] == (BLACKWELL, "12.0")
    for name, start in wanted.items():
        assert found[name][0].startswith(start)
        assert found[name][1] == "12.0"


def test_dense_prefill_is_uncompressed_and_sparse_prefill_absorbed() -> None:
    """What a library has not is computed by the bundled kernels, which are named."""
    assert first("deepseek-v3", "h100").latent == LatentForms(
        decode="absorbed",
        prefill="uncompressed",
        row=576,
        prefill_head_size=192,
        prefill_head_size_v=128,
        prefill_by="TRITON_MLA",
    )
    assert first("deepseek-v3", "zen3").latent.prefill_by == "CPU_MLA"
    assert first("glm-moe-dsa", "h100").latent == LatentForms(
        decode="absorbed",
        prefill="absorbed",
        row=576,
        prefill_head_size=None,
        prefill_head_size_v=None,
        prefill_by="FLASHMLA_SPARSE",
        indexer_by="TRITON_MLA_SPARSE",
    )
    assert first("llama-3.1-8b", "h100").latent is None


@pytest.mark.parametrize(
    ("model", "machine", "sentence"),
    [
        (
            "kimi-k2",
            "b200",
            "prefill: uncompressed, heads of K 192 and V 128 made from the cache by TRITON_MLA's "
            "kernels; decode: absorbed, rows of 576",
        ),
        (
            "deepseek-v3.2",
            "mi300x",
            "prefill and decode: absorbed, rows of 576, over the 2048 tokens that the indexer "
            "picks; indexer: TRITON_MLA_SPARSE's kernels",
        ),
        (
            "deepseek-v3.2",
            "zen3",
            "prefill and decode: absorbed, rows of 576, over the 2048 tokens that the indexer "
            "picks; indexer: CPU_MLA_SPARSE's kernels",
        ),
    ],
)
def test_the_screen_says_which_form(model: str, machine: str, sentence: str) -> None:
    """One line below the runners-up."""
    report = asked(model, machine)
    group = report.groups[0]
    assert group.latent is not None
    assert forms_text(group.latent, group.layer) == sentence
    assert sentence in plain(select_view(report)).splitlines()


def test_layers_that_run_the_indexer_are_told_from_those_that_do_not() -> None:
    """GLM's two groups differ in nothing else, and get the same backend."""
    own, reusing = asked("glm-moe-dsa", "h100").groups
    assert demands(own) == ("64 heads, 1 KV, latent 512 + rope 64, top 2048 picked here, bfloat16")
    assert demands(reusing) == (
        "64 heads, 1 KV, latent 512 + rope 64, top 2048 picked in a layer before, bfloat16"
    )
    assert own.pick == reusing.pick == "FLASHMLA_SPARSE"
    assert own.layers[:4] == (0, 1, 5, 9)
    assert reusing.layers[:4] == (2, 3, 4, 6)
