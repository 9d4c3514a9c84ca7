"""What tensor-parallel ranks share must divide among them, whatever backend serves the layer."""

from __future__ import annotations

import pytest

from attnctl.caches.costs import cost
from attnctl.layer import Options, layer_of
from attnctl.machines.assumed import Assumption
from attnctl.model.spec import LayerGroup, ModelSpec, State
from attnctl.registry import load
from attnctl.render.costs import cost_text
from attnctl.requirements.ranks import undivided
from attnctl.selection.answer import answer
from tests import machine_factory as box
from tests.layer_factory import decide, group, latent


def state(kind: str, **counts: int) -> LayerGroup:
    return LayerGroup(kind=kind, layers=(0,), state=State(type=kind, **counts))


@pytest.mark.parametrize(
    ("layers", "tp", "bad"),
    [
        (group(), 1, ""),
        (group(), 8, ""),
        (group(), 32, ""),  # each KV head four times
        (group(), 3, "32 query heads and 8 KV heads"),
        (group(num_heads=48, num_kv_heads=8), 12, "8 KV heads"),
        (group(num_heads=48, num_kv_heads=8), 16, ""),
        (group(num_heads=None, num_kv_heads=None), 5, ""),
        (latent(), 128, ""),  # one latent row, held by every rank
        (latent(heads=128), 96, "128 query heads"),
        (state("gdn", num_k_heads=16, num_v_heads=32), 16, ""),
        (state("gdn", num_k_heads=16, num_v_heads=32), 32, "16 key heads"),
        (state("kda", num_heads=32), 5, "32 heads of the state"),
        (state("mamba1", inner=8192), 3, "8192 channels"),
        (state("mamba2", num_heads=128, n_groups=1), 16, ""),
        (state("mamba2", num_heads=96, n_groups=8), 12, "8 groups"),
        (state("linear", num_heads=64), 6, "64 heads of the state"),
        (LayerGroup(kind="none", layers=(0,)), 7, ""),
    ],
)
def test_the_counts_that_do_not_divide(layers: LayerGroup, tp: int, bad: str) -> None:
    """Query heads and states must divide; KV heads and groups may be repeated whole."""
    assert undivided(layers, tp) == bad


def test_a_short_convolution_shares_its_channels() -> None:
    """Stated by the state's own shape where no inner width is."""
    layers = LayerGroup(
        kind="short_conv", layers=(0,), state=State(type="short_conv", conv_state=(2048, 2))
    )
    assert (undivided(layers, 16), undivided(layers, 3)) == ("", "2048 channels")


def test_every_candidate_says_so_and_nothing_is_picked() -> None:
    """A plug-in's backend, a state's or the layer's own: each holds the one finding."""
    decision = decide(group(), box.cuda(9), tp=3)
    assert decision.pick is None
    for one in decision.candidates:
        (found,) = [f for f in one.findings if f.code == "tensor_parallel"]
        assert found.found == "32 query heads and 8 KV heads on 3 ranks"
        assert (found.met, found.source, found.fix) == (False, "--tp", "--tp 2")


def test_ranks_that_divide_are_met_and_one_rank_raises_no_question() -> None:
    """The default answer is as short as it was."""
    two, one = (decide(group(), box.cuda(9), tp=tp) for tp in (2, 1))
    met = [f for f in two.candidates[0].findings if f.code == "tensor_parallel"]
    assert [f.met for f in met] == [True]
    assert two.pick is not None
    assert all(f.code != "tensor_parallel" for c in one.candidates for f in c.findings)


def test_no_heads_vanish_from_a_layer_or_its_cost() -> None:
    """Eight KV heads on three ranks: three on the fullest, and no figure for the cache."""
    layers = group()
    spec = ModelSpec(model_type="invented", groups=(layers,), dtype="bfloat16")
    layer = layer_of(spec, layers, Options(tp=3))
    assert (layer.heads, layer.kv_heads) == (11, 3)
    found = cost(decide(layers, box.cuda(9), tp=3), Options(tp=3))
    assert (found.token_bytes, found.sequence_bytes) == (0, None)
    assert cost_text(found) == "not known: 32 query heads and 8 KV heads do not divide by --tp 3"


def test_the_answer_is_no_and_another_number_of_ranks_is_what_would_change_it() -> None:
    """Exit code 1, and --what-if names the ranks that would serve."""
    layers = group()
    spec = ModelSpec(model_type="invented", groups=(layers,), dtype="bfloat16")
    report = answer(spec, Assumption(box.cuda(9)), load(), Options(tp=3), what_if=True)
    assert report.exit_code == 1
    (one,) = report.groups
    assert one.what_if is not None
    assert {f.change: f.after for f in one.what_if if f.after} == {"--tp 1": "FLASH_ATTN"}


def test_every_backend_is_asked_once() -> None:
    """No declaration names the rule, and none escapes it."""
    for backend in load().backends:
        assert [rule.code for rule in backend.rules].count("tensor_parallel") == 1
