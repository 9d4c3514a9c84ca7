"""Properties of the registry's rules over layers and machines that nobody wrote down."""

from __future__ import annotations

from typing import get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.layer import KV_DTYPES, Options, layer_of
from attnctl.machine import Gpu, Machine, Package, Vendor
from attnctl.model.spec import Indexer, Kind, LayerGroup, Mla, ModelSpec, State
from attnctl.registry import load
from attnctl.select import select
from attnctl.selection.memo import Memo
from tests import machine_factory as box

REGISTRY = load()
PACKAGES = REGISTRY.packages()

widths = st.none() | st.integers(0, 1024)
counts = st.none() | st.integers(1, 256)
mlas = st.builds(
    Mla,
    kv_lora_rank=st.integers(0, 1024),
    qk_rope_head_dim=st.integers(0, 128),
    qk_nope_head_dim=st.integers(0, 256),
    v_head_dim=st.integers(0, 256),
    prefill_head_size=st.just(192),
    prefill_head_size_v=st.just(128),
)
groups = st.builds(
    LayerGroup,
    kind=st.sampled_from(get_args(Kind)),
    layers=st.just((0,)),
    stack=st.sampled_from((None, "encoder", "decoder")),
    head_size=widths,
    head_size_v=widths,
    num_heads=counts,
    num_kv_heads=counts,
    window=widths,
    window_right=widths,
    chunk=widths,
    sinks=st.booleans(),
    softcap=st.none() | st.floats(1, 100),
    alibi=st.booleans(),
    prefix_lm=st.booleans(),
    mla=st.none() | mlas,
    indexer=st.none()
    | st.builds(Indexer, heads=counts, head_dim=counts, topk=st.integers(0, 4096)),
    state=st.none()
    | st.builds(State, type=st.just("gdn"), conv_kernel=counts, head_k_dim=counts, head_dim=counts),
)
gpus = st.builds(
    Gpu,
    index=st.just(0),
    arch=st.sampled_from((None, "", "sm_90", "gfx90a", "gfx942", "gfx1201", "xe2-hpg")),
    capability=st.none() | st.tuples(st.integers(3, 15), st.integers(0, 9)),
    shared_memory_bytes=st.none() | st.integers(0, 300_000),
)
packages = st.dictionaries(
    st.sampled_from(PACKAGES),
    st.builds(
        Package,
        status=st.sampled_from(("ok", "absent", "unknown", "timeout", "assumed")),
        source=st.just("a test"),
        usable=st.none() | st.booleans(),
    ),
)
options = st.builds(
    Options,
    dtype=st.sampled_from(("float16", "bfloat16", "float32", "float64")),
    kv_cache_dtype=st.sampled_from(tuple(KV_DTYPES)),
    block_size=st.none() | st.integers(1, 1024),
    tp=st.integers(1, 64),
)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    vendor = draw(st.sampled_from(("nvidia", "amd", "intel", None)))
    machine = msgspec.structs.replace(box.cpu(), packages=draw(packages))
    if vendor is None:
        return machine
    return msgspec.structs.replace(machine, **{vendor: Vendor(status="ok", gpus=(draw(gpus),))})


@settings(max_examples=100, deadline=None)
@given(groups, machines(), options)
def test_no_rule_raises_and_every_refusal_says_what_it_found(
    group: LayerGroup, machine: Machine, chosen: Options
) -> None:
    """Whatever the facts: each answer is a finding, and none is an exception in disguise."""
    layer = layer_of(ModelSpec(model_type="any", groups=(group,)), group, chosen)
    decision = select(layer, machine, REGISTRY, chosen)
    for candidate in decision.candidates:
        assert candidate.ok is (candidate.reasons == ())
        for finding in candidate.findings:
            assert finding.wanted != "a rule that answers", finding
            assert finding.wanted
            assert finding.found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(groups, machines()), min_size=1, max_size=4), options)
def test_a_shared_memo_changes_no_decision(
    pairs: list[tuple[LayerGroup, Machine]], chosen: Options
) -> None:
    """Asking once for many gives what asking each time gives."""
    memo = Memo()
    layers = [
        layer_of(ModelSpec(model_type="any", groups=(group,)), group, chosen) for group, _ in pairs
    ]
    for layer in layers:
        for _, machine in pairs:
            shared = select(layer, machine, REGISTRY, chosen, memo=memo)
            assert shared == select(layer, machine, REGISTRY, chosen)


@settings(max_examples=40, deadline=None)
@given(groups, machines(), options)
def test_an_unknown_fact_never_makes_a_backend_eligible(
    group: LayerGroup, machine: Machine, chosen: Options
) -> None:
    """Forgetting every package leaves nothing eligible that asks for one."""
    forgetful = msgspec.structs.replace(machine, packages={})
    layer = layer_of(ModelSpec(model_type="any", groups=(group,)), group, chosen)
    decision = select(layer, forgetful, REGISTRY, chosen)
    assert [candidate.name for candidate in decision.candidates if candidate.ok] == []
