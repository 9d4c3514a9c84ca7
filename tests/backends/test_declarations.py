"""What holds for every declaration, whichever it is."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

import attnctl.backends
from attnctl.findings import Verdict
from attnctl.layer import FEATURES, OPS, Layer, Options, layer_of
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.registry import Backend, load
from attnctl.requirements.rule import Subject
from attnctl.select import subject_of
from attnctl.selection.picking import block_of
from tests import machine_factory as box
from tests.layer_factory import BY_OP, decide, eligible, group, latent

REGISTRY = load()
BACKENDS = REGISTRY.backends
PLATFORMS = ("cuda", "rocm", "xpu", "cpu")

# what a stranger has: torch and Triton, and no library of kernels
PLAIN = {
    "cuda 7.5": (box.cuda(7, 5, packages=("torch", "triton")), "float16"),
    "cuda 8.0": (box.cuda(8, packages=("torch", "triton")), "bfloat16"),
    "cuda 12.0": (box.cuda(12, packages=("torch", "triton")), "bfloat16"),
    "rocm gfx942": (box.rocm("gfx942", packages=("torch", "triton")), "bfloat16"),
    "rocm gfx1100": (box.rocm("gfx1100", packages=("torch", "triton")), "bfloat16"),
    "xpu": (box.xpu(packages=("torch", "triton")), "bfloat16"),
    "cpu": (box.cpu(packages=("torch",)), "bfloat16"),
}


def subjects() -> list[Subject]:
    """Many layers on many machines: enough to see every conditional place in the orders."""
    machines = [
        *(box.cuda(*cc) for cc in ((7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (11, 0), (12, 0))),
        *(box.rocm(arch) for arch in ("gfx90a", "gfx942", "gfx1100", "gfx1201")),
        box.rocm("gfx942", packages=("torch", "triton", "vllm")),
        box.xpu(),
        box.cpu(),
    ]
    groups = [*BY_OP.values(), latent(topk=2048, heads=16), group("encoder_self")]
    options = [Options(), Options(kv_cache_dtype="fp8")]
    return [
        subject_of(machine, _layer(layers, option))
        for machine in machines
        for layers in groups
        for option in options
    ]


def _layer(layers: LayerGroup, options: Options) -> Layer:
    return layer_of(ModelSpec(model_type="m", groups=(layers,), dtype="bfloat16"), layers, options)


def test_every_folder_loads() -> None:
    """No declaration is broken, and none is missing."""
    folder = Path(attnctl.backends.__file__).parent
    folders = {path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert REGISTRY.broken == ()
    assert {backend.name.lower() for backend in BACKENDS} == folders
    assert len(folders) == 27


def test_no_kernel_is_planned_and_what_is_beside_one_is_bundled() -> None:
    """Every backend runs; libraries of latent attention have a bundled backend beside them."""
    assert {backend.kernel for backend in BACKENDS} == {"adapter", "bundled"}
    for backend in BACKENDS:
        library = backend.ops[0].startswith("mla") and backend.name.split("_")[0] not in (
            "TRITON",
            "CPU",
        )
        assert bool(backend.beside) is library
        if library:
            other = REGISTRY.get(backend.beside)
            assert other is not None
            assert other.ops == backend.ops
            assert (other.kernel, other.beside) == ("bundled", "")


def test_loading_the_registry_imports_no_torch() -> None:
    """A fresh interpreter with every declaration loaded has none of the heavy packages."""
    heavy = ("torch", "triton", "numpy", "transformers", "pydantic", "importlib.metadata")
    code = (
        "import sys; from attnctl.registry import load; load(); "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_declaration_names_known_operations_and_asks_for_them(backend: Backend) -> None:
    """What it computes is one of the operations, and its rules refuse the others."""
    assert set(backend.ops) <= {*OPS.values(), "diffkv"}
    (rule,) = [rule for rule in backend.rules if rule.code == "operation"]
    for op, layers in BY_OP.items():
        finding = rule.check(subject_of(box.cuda(9), _layer(layers, Options())))
        assert finding is not None
        assert finding.met is (op in backend.ops)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_declaration_answers_for_every_feature(backend: Backend) -> None:
    """A feature is yes, no or a condition in each; none is left open."""
    codes = [rule.code for rule in backend.rules]
    assert [name for name in FEATURES if codes.count(name) != 1] == []


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_declaration_stands_in_the_order_of_each_platform_it_runs_on(backend: Backend) -> None:
    """It has a place without a condition there, and none elsewhere."""
    (rule,) = [rule for rule in backend.rules if rule.code == "platform"]
    placed = {rank.platform for rank in backend.ranks if rank.when is None}
    assert placed == set(rule.platforms)
    assert {rank.platform for rank in backend.ranks} == placed


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_block_that_a_backend_gets_is_one_that_its_rules_take(
    backend: Backend, platform: str
) -> None:
    """The sizes for the cache plan and the rule for --block-size cannot drift apart."""
    machine = {"cuda": box.cuda(9), "rocm": box.rocm(), "xpu": box.xpu(), "cpu": box.cpu()}
    layers = BY_OP[backend.ops[0]]
    if backend.is_ssm or platform not in {rank.platform for rank in backend.ranks}:
        assert backend.is_ssm or all(rank.platform != platform for rank in backend.ranks)
        return
    rules = [rule for rule in backend.rules if rule.code == "block_size"]
    assert rules
    chosen = block_of(backend, _layer(layers, Options()), platform)
    assert chosen is not None
    units = backend.block_units(platform)
    for size in (chosen, *units, *(2 * unit for unit in units), min(units) + 1, 3):
        subject = subject_of(machine[platform], _layer(layers, Options(block_size=size)))
        findings = [finding for rule in rules if (finding := rule.check(subject)) is not None]
        assert findings
        assert all(finding.met for finding in findings) is any(size % u == 0 for u in units)


def test_state_backends_are_those_of_the_recurrent_operations() -> None:
    """`is_ssm` is declared where a state is kept, and nowhere else."""
    named = {backend.name for backend in BACKENDS if backend.is_ssm}
    assert named == {"GDN_ATTN", "MAMBA1_ATTN", "MAMBA2_ATTN", "SHORT_CONV_ATTN", "LINEAR_ATTN"}
    for layers in BY_OP.values():
        decision = decide(layers, box.cuda(9))
        assert decision.pick is not None
        assert decision.pick.is_ssm is layers.is_ssm


def test_no_two_backends_share_a_place_for_the_same_layer() -> None:
    """The order is total wherever two backends compute the same operation."""
    shared = []
    for subject in subjects():
        serving = [
            (backend.name, rank.place)
            for backend in BACKENDS
            if subject.layer.op in backend.ops and (rank := backend.rank(subject)) is not None
        ]
        shared += [(a, b) for a, b in combinations(serving, 2) if a[1] == b[1]]
    assert shared == []


# what no kernel of the field's backends takes: such layers are refused with this reason
UNSERVED = {
    "score_bias": group("encoder_self", notes={"score_bias": "relative positions"}),
    "blocksparse": group("blocksparse"),
}


@pytest.mark.parametrize("where", PLAIN)
@pytest.mark.parametrize("feature", UNSERVED)
def test_what_no_kernel_computes_is_refused_and_never_dropped(where: str, feature: str) -> None:
    """T5's relative positions in the scores, Phi-3-small's pattern of blocks: a backend without
    them would answer wrongly."""
    machine, dtype = PLAIN[where]
    decision = decide(UNSERVED[feature], machine, dtype=dtype)
    assert not eligible(decision)
    assert all(feature in {r.code for r in c.reasons} for c in decision.candidates if c.place)


@pytest.mark.parametrize("where", PLAIN)
@pytest.mark.parametrize("op", BY_OP)
def test_every_operation_runs_everywhere_without_any_library(where: str, op: str) -> None:
    """torch and Triton are enough for each operation on each platform."""
    machine, dtype = PLAIN[where]
    decision = decide(BY_OP[op], machine, dtype=dtype)
    assert eligible(decision), [(c.name, [f.code for f in c.reasons]) for c in decision.candidates]


@pytest.mark.parametrize("feature", [name for name in FEATURES if name not in UNSERVED])
@pytest.mark.parametrize("where", ["cuda 8.0", "rocm gfx942", "xpu", "cpu"])
def test_every_feature_is_served_on_each_platform(where: str, feature: str) -> None:
    """No layer that a model can have is without a backend for want of a feature."""
    layers = {
        "encoder": group("encoder_self", stack="encoder"),
        "encoder_only": group("encoder_self"),
        "cross": group("cross", stack="decoder"),
        "sliding_window": group("sliding", window=128),
        "two_sided_window": group("encoder_self", window=64, window_right=64),
        "chunked": group("chunked", chunk=8192),
        "sinks": group(sinks=True),
        "softcap": group(softcap=50.0),
        "alibi": group(alibi=True),
        "prefix_lm": group(prefix_lm=True),
        "kda_gate": BY_OP["gdn"],
    }[feature]
    machine, dtype = PLAIN[where]
    assert eligible(decide(layers, machine, dtype=dtype))


def test_unknown_facts_give_unknown_and_no_pick() -> None:
    """A machine whose packages nobody looked for is not one where they are missing."""
    blank = box.cuda(9, packages=())
    for layers in BY_OP.values():
        decision = decide(layers, blank)
        assert decision.pick is None
        torch = [
            finding
            for candidate in decision.candidates
            for finding in candidate.findings
            if finding.wanted == "torch"
        ]
        assert len(torch) == len(BACKENDS)
        assert all(finding.verdict is Verdict.UNKNOWN for finding in torch)


def test_a_gpu_whose_figures_are_unknown_is_not_taken_for_one_that_fits() -> None:
    """Without a compute capability or shared memory the rules that need them say unknown."""
    machine = box.cuda(9)
    gpu = msgspec.structs.replace(machine.gpus[0], capability=None, shared_memory_bytes=None)
    nvidia = msgspec.structs.replace(machine.nvidia, gpus=(gpu,))
    decision = decide(group(), msgspec.structs.replace(machine, nvidia=nvidia))
    assert decision.pick is None
    open_questions = {
        finding.code: finding.verdict
        for candidate in decision.candidates
        if candidate.name == "TRITON_ATTN"
        for finding in candidate.reasons
    }
    assert open_questions == {
        "compute_capability": Verdict.UNKNOWN,
        "shared_memory": Verdict.UNKNOWN,
    }
