"""Selection over invented backends: what a decision holds, whatever the registry declares."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.decision import Decision
from attnctl.exits import InputError
from attnctl.findings import Verdict, met, unknown, unmet
from attnctl.layer import Layer, Options, layer_of
from attnctl.machine import Cpu, Gpu, Machine, Vendor
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.registry import Backend, Rank, Registry
from attnctl.requirements import Rule, operation
from attnctl.select import AUTO, select, select_model, subject_of
from attnctl.selection.memo import Memo
from attnctl.selection.picking import block_of

GPU = Gpu(
    index=0, name="Invented", arch="sm_90", capability=(9, 0), pci_id="10de:0001", unit_count=8
)
BOX = Machine(name="box", nvidia=Vendor(status="ok", gpus=(GPU,)), cpu=Cpu(arch="x86_64"))
GROUP = LayerGroup(kind="full", layers=(0, 1), num_heads=8, num_kv_heads=2, head_size=64)
SPEC = ModelSpec(model_type="invented", groups=(GROUP,), dtype="bfloat16")


def rule(code: str, verdict: Verdict) -> Rule:
    make = {Verdict.MET: met, Verdict.UNMET: unmet, Verdict.UNKNOWN: unknown}[verdict]
    return Rule(code, "both", lambda subject: make(code, "wanted", "found"))


def backend(name: str, *rules: Rule, place: int | None = None, **more: object) -> Backend:
    ranks = () if place is None else (Rank(platform="cuda", place=place, why=f"{name} is first"),)
    return Backend(
        name=name,
        summary="invented",
        ops=("paged",),
        rules=(operation("paged"), *rules),
        ranks=ranks,
        kernel="bundled",
        **more,
    )


def decide(*backends: Backend, options: Options = AUTO, spec: ModelSpec = SPEC) -> Decision:
    layer = layer_of(spec, spec.groups[0], options)
    return select(layer, BOX, Registry(backends), options)


def test_the_lowest_place_wins_and_says_why() -> None:
    """The winner names its runner-up, the phrase of its own rank and the evidence class."""
    decision = decide(backend("SLOW", place=20), backend("FAST", place=10))
    assert decision.pick is not None
    assert decision.pick.name == "FAST"
    assert decision.pick.evidence == "default"
    assert decision.pick.beat[0].name == "SLOW"
    assert decision.pick.why == "before SLOW: FAST is first"


def test_every_candidate_is_there_exactly_once_with_all_its_reasons() -> None:
    """No check returns early: a candidate that fails three rules shows three reasons."""
    bad = backend("BAD", *(rule(code, Verdict.UNMET) for code in ("a", "b", "c")), place=1)
    decision = decide(bad, backend("GOOD", place=2))
    assert sorted(c.name for c in decision.candidates) == ["BAD", "GOOD"]
    reasons = {c.name: [f.code for f in c.reasons] for c in decision.candidates}
    assert reasons == {"BAD": ["a", "b", "c"], "GOOD": []}


def test_an_unknown_fact_is_never_picked() -> None:
    """Unknown is not met: the candidate with it stands among the rejected."""
    decision = decide(backend("MAYBE", rule("driver", Verdict.UNKNOWN), place=1))
    assert decision.pick is None
    assert decision.candidates[0].reasons[0].verdict is Verdict.UNKNOWN


def test_a_rule_that_raises_is_unknown_and_stops_nothing() -> None:
    """A plug-in's broken rule becomes a finding with the exception's text."""

    def explode(subject: object) -> None:
        raise KeyError("libamd_smi.so")

    broken = backend("BROKEN", Rule("plug", "both", explode), place=1)
    decision = decide(broken, backend("GOOD", place=2))
    assert decision.pick is not None
    assert decision.pick.name == "GOOD"
    (reason,) = decision.candidates[1].reasons
    assert reason.verdict is Verdict.UNKNOWN
    assert "KeyError: 'libamd_smi.so'" in reason.found


def test_an_unmet_request_gives_no_pick_and_names_what_would_have_been() -> None:
    """A demanded backend is never silently replaced."""
    backends = backend("WANTED", rule("a", Verdict.UNMET), place=1), backend("OTHER", place=2)
    demand = Options(backend=(("*", "WANTED"),))
    decision = decide(*backends, options=demand)
    assert decision.pick is None
    assert not decision.answered
    assert decision.would_pick is not None
    assert decision.would_pick.name == "OTHER"
    allowed = msgspec.structs.replace(demand, allow_fallback=True)
    fallen = decide(*backends, options=allowed)
    assert fallen.pick is not None
    assert fallen.pick.name == "OTHER"
    assert "WANTED" in fallen.notes[0]


def test_a_request_by_kind_binds_that_kind_only() -> None:
    """`--backend sliding=X` leaves full attention to the order."""
    demand = Options(backend=(("sliding", "B"),))
    assert demand.requested("full") is None
    decision = decide(backend("A", place=1), backend("B", place=2), options=demand)
    assert decision.pick is not None
    assert decision.pick.name == "A"


def test_a_place_with_a_condition_is_evidence_of_a_rule() -> None:
    """A rank that looked at machine or layer is a rule, one that did not is the default."""
    rank = Rank(platform="cuda", place=1, why="this chip", when=lambda s: s.gpu is not None)
    special = msgspec.structs.replace(backend("SPECIAL"), ranks=(rank,))
    decision = decide(special, backend("PLAIN", place=2))
    assert decision.pick is not None
    assert decision.pick.evidence == "rule"


def test_a_backend_without_a_kernel_is_picked_and_said_not_to_run_yet() -> None:
    """`planned` keeps its place in the order and is marked."""
    planned = msgspec.structs.replace(backend("SOON", place=1), kernel="planned")
    decision = decide(planned)
    assert decision.pick is not None
    assert not decision.pick.runnable
    assert "not runnable yet" in decision.pick.note


def test_layers_without_attention_need_no_backend() -> None:
    """A block that caches nothing is answered with no pick and no candidates."""
    spec = msgspec.structs.replace(SPEC, groups=(LayerGroup(kind="none", layers=(3,)),))
    decision = decide(backend("A", place=1), spec=spec)
    assert decision.answered
    assert decision.pick is None
    assert decision.candidates == ()


@pytest.mark.parametrize(
    ("sizes", "multiple", "prefers", "user", "expected"),
    [
        ((32, 64), None, None, None, 32),  # 16 is no size of it: its smallest
        ((16, 32, 64), None, None, None, 16),
        ((), 16, None, None, 16),
        ((), 16, 64, None, 64),  # what it prefers
        ((), 16, 64, 272, 272),  # the user's word
        ((1,), None, None, 64, 64),  # one page of 64 is 64 kernel blocks of 1
    ],
)
def test_the_cache_block_adapts_unless_the_user_fixed_it(
    sizes: tuple[int, ...],
    multiple: int | None,
    prefers: int | None,
    user: int | None,
    expected: int,
) -> None:
    """Unspecified adapts to the kernel's sizes; the manager's page is another number."""
    declared = backend(
        "B", place=1, block_sizes=sizes, block_multiple=multiple, prefers_block=prefers
    )
    layer = layer_of(SPEC, GROUP, Options(block_size=user))
    assert block_of(declared, layer) == expected


def test_a_memo_gives_the_findings_that_asking_again_would() -> None:
    """A sweep with one memo decides as fresh selections do."""
    asked: list[Layer] = []

    def count(subject: object) -> None:
        asked.append(subject.layer)

    counted = backend("A", Rule("seen", "layer", count), place=1)
    layer, memo = layer_of(SPEC, GROUP, Options()), Memo()
    first = select(layer, BOX, Registry((counted,)), memo=memo)
    second = select(layer, BOX, Registry((counted,)), memo=memo)
    assert first == second == select(layer, BOX, Registry((counted,)))
    assert len(asked) == 2


def test_a_decision_goes_to_json_and_back() -> None:
    """What the command prints is the value that the library holds."""
    decision = decide(backend("A", rule("x", Verdict.MET), place=1))
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


@pytest.mark.parametrize("field", ["tp", "block_size", "max_model_len"])
@pytest.mark.parametrize("count", [0, -1])
def test_a_count_below_one_is_refused_when_the_options_are_made(field: str, count: int) -> None:
    """In a program too: a sentence that names the option, and no division by zero later."""
    option = f"--{field.replace('_', '-')} {count}"
    with pytest.raises(InputError, match=f"^{option}: must be 1 or more$"):
        Options(**{field: count})
    with pytest.raises(InputError):
        msgspec.structs.replace(AUTO, **{field: count})


@pytest.mark.parametrize("device", [1, 7, -1])
def test_a_device_that_is_not_there_is_refused(device: int) -> None:
    """No other device answers in its place."""
    with pytest.raises(InputError, match=f"device {device}: box has only device 0"):
        select_model(SPEC, BOX, Registry((backend("X"),)), device=device)
    processor = msgspec.structs.replace(BOX, nvidia=Vendor(status="absent"))
    with pytest.raises(InputError, match="only device 0"):
        select_model(SPEC, processor, Registry((backend("X"),)), device=device)


def test_each_device_is_answered_by_its_own_facts() -> None:
    """The last of two is the second."""
    second = msgspec.structs.replace(GPU, index=1, name="Other")
    two = msgspec.structs.replace(BOX, nvidia=Vendor(status="ok", gpus=(GPU, second)))
    layer = layer_of(SPEC, GROUP, AUTO)
    assert [subject_of(two, layer, device).gpu for device in (0, 1)] == [GPU, second]
    with pytest.raises(InputError, match="devices 0 to 1"):
        subject_of(two, layer, 2)
