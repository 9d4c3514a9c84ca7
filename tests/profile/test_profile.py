"""Profiles: what fits, what is stale, what is dead; only eligible backends are reordered."""

from __future__ import annotations

import msgspec
import pytest

from attnctl import machines
from attnctl.decision import NOT_TIMED
from attnctl.exits import InputError
from attnctl.layer import Options, layer_of
from attnctl.machine import Cpu, Gpu, Machine, Package, Vendor
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.profile import (
    Entry,
    Key,
    Picker,
    Point,
    Profile,
    Rejected,
    Timing,
    Versions,
    measured_order,
    parse,
    shape_of,
)
from attnctl.profile.diff import difference
from attnctl.profile.document import key_of
from attnctl.profile.match import match
from attnctl.profile.merge import merge
from attnctl.profile.ratio import times_text
from attnctl.profile.values import Shape
from attnctl.registry import Backend, Rank, Registry
from attnctl.requirements import head_sizes, operation
from attnctl.select import select

GROUP = LayerGroup(kind="full", layers=(0,), num_heads=8, num_kv_heads=2, head_size=64)
LAYER = layer_of(ModelSpec(model_type="m", groups=(GROUP,), dtype="bfloat16"), GROUP, Options())
KEY = Key(vendor="amd", arch="gfx942", pci_id="1002:74a2", unit_count=80)


def machine(name: str = "AMD Instinct MI308X", driver: str = "6.1", **versions: str) -> Machine:
    gpu = Gpu(index=0, name=name, arch="gfx942", pci_id="1002:74a2", unit_count=80)
    packages = {n: Package(status="ok", source="test", version=v) for n, v in versions.items()}
    amd = Vendor(status="ok", driver=driver, gpus=(gpu,))
    return Machine(name="m", amd=amd, cpu=Cpu(), packages=packages)


def profile(*timings: tuple[float, ...], names: tuple[str, ...], **more: object) -> Profile:
    points = tuple(
        Point(
            phase="decode",
            batch=batch,
            context=1024,
            timings=tuple(Timing(backend=n, median_us=t) for n, t in zip(names, row, strict=True)),
        )
        for batch, row in zip((1, 8, 64), timings, strict=False)
    )
    entry = Entry(shape=shape_of(LAYER), points=points, kernels=more.pop("kernels", {}))  # type: ignore[arg-type]
    return Profile(name="p", key=KEY, entries=(entry,), measured="2026-08-01", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("gpu", KEY),
        ("gpu", Key(vendor="nvidia", arch="sm_87")),
        ("gpu", Key(vendor="AMD", arch="GFX1151")),
        ("gpu", Key(vendor="intel", arch="xe2-lpg")),
        ("gpu", Key(vendor="amd", arch="*", pci_id="1002:74a2")),
        ("gpu", Key(vendor="amd", arch="*")),
        ("gpu", Key(vendor="intel", arch="unknown", pci_id="8086:e20b")),
        ("cpu", Key(vendor="AMD", arch="zen3", unit_count=2)),
        ("cpu", Key(vendor="amd", arch="zen3", pci_id="*")),
        ("cpu", Key(vendor="NVIDIA", arch="armv9.2a")),
        ("cpu", Key(vendor="unknown", arch="x86_64")),
        ("cpu", Key(vendor="Intel", arch="*")),
    ],
)
def test_a_key_tells_a_processor_from_a_gpu(kind: str, key: Key) -> None:
    """By its PCI id, its architecture, and where both are open by how the vendor is written."""
    assert key.kind == kind


@pytest.mark.parametrize("name", machines.names())
def test_the_keys_of_bundled_machines_tell_what_they_are_of(name: str) -> None:
    """Each GPU by its architecture alone, each processor by its own."""
    box = machines.load(name)
    for gpu in box.gpus:
        key = key_of(box, gpu)
        assert key.kind == msgspec.structs.replace(key, pci_id=None).kind == "gpu"
    assert key_of(box, None).kind == "cpu"


@pytest.mark.parametrize("name", ["AMD_Instinct_MI308X_OAM", "AMD Radeon Graphics", None])
def test_a_profile_is_found_whatever_the_image_calls_the_card(name: str | None) -> None:
    """The key is vendor, arch, PCI device and unit count; the marketing name has no say."""
    box = machine(name=name or "")
    assert match(profile(names=()), box, box.gpus[0]).status == "valid"


def test_the_case_of_a_keys_names_is_no_difference() -> None:
    """A machine file may hold "1002:74A2", as some tools print it, and "GFX942"."""
    box = machine()
    shouted = msgspec.structs.replace(box.gpus[0], arch="GFX942", pci_id="1002:74A2")
    assert match(profile(names=()), box, shouted).status == "valid"
    other = msgspec.structs.replace(shouted, pci_id="1002:74A3")
    assert match(profile(names=()), box, other).status == "foreign"
    key = msgspec.structs.replace(KEY, vendor="AMD", arch="Gfx942", pci_id="1002:74A2")
    named = msgspec.structs.replace(profile((9.0, 3.0), names=("A", "B")), key=key)
    assert merge(profile(names=()), named).key == key
    assert difference(profile(names=()), msgspec.structs.replace(named, entries=())).fields == ()


@pytest.mark.parametrize("field", ["vendor", "arch", "pci_id", "unit_count"])
def test_another_key_is_foreign_and_says_which_field(field: str) -> None:
    """A profile of another part is not used, and the finding names both values."""
    other = msgspec.structs.replace(KEY, **{field: 79 if field == "unit_count" else "other"})
    foreign = msgspec.structs.replace(profile(names=()), key=other)
    box = machine()
    found = match(foreign, box, box.gpus[0])
    assert found.status == "foreign"
    assert not found.usable
    assert [f.wanted for f in found.findings if not f.met] == [f"{field} {getattr(other, field)}"]


@pytest.mark.parametrize(
    ("now", "status", "note"),
    [
        ({"triton": "3.7.1", "torch": "2.8.0"}, "stale", "profile_version"),
        ({"triton": "3.4.0", "torch": "2.8.0"}, "valid", None),
        ({"triton": "3.4.0", "torch": "2.8.0", "driver": "580.2"}, "valid", "profile_driver"),
        ({"torch": "2.8.0"}, "stale", "profile_version"),  # a version that nobody could tell
    ],
)
def test_another_compiler_is_stale_and_another_driver_a_note(
    now: dict[str, str], status: str, note: str | None
) -> None:
    """Stale profiles are used with a warning; an unknown version never locks the file."""
    timed = profile(names=(), versions=Versions(torch="2.8.0", triton="3.4.0", driver="570.1"))
    box = machine(**{"driver": "570.1", **now})
    found = match(timed, box, box.gpus[0])
    assert (found.status, found.usable) == (status, True)
    assert [f.code for f in found.findings if not f.met] == ([note] if note else [])


def test_timings_of_a_changed_kernel_are_dead_and_the_others_live() -> None:
    """An edited kernel expires only its own timings."""
    timed = profile(
        (9.0, 3.0, 5.0), names=("A", "B", "C"), kernels={"A": "aaa", "B": "aaa", "C": "aaa"}
    )
    order = measured_order(timed, LAYER, ["A", "B", "C"], {"A": "aaa", "B": "bbb", "C": "aaa"})
    assert order is not None
    assert (order.names, set(order.because)) == (("C", "B", "A"), {"A"})


@pytest.mark.parametrize("run", [(10.0, 10.05, 14.0), (10.06, 10.01, 14.1), (10.03, 10.02, 13.9)])
def test_within_two_percent_the_earlier_one_wins_every_time(run: tuple[float, ...]) -> None:
    """Noise does not change the winner between two runs."""
    order = measured_order(profile(run, names=("A", "B", "C")), LAYER, ["A", "B", "C"])
    assert order is not None
    assert order.names == ("A", "B", "C")


def sparse(*points: dict[str, float], weight: float = 1.0) -> Profile:
    """A profile whose points time different backends."""
    made = tuple(
        Point(
            phase="decode",
            batch=batch,
            context=1024,
            weight=weight,
            timings=tuple(Timing(backend=name, median_us=us) for name, us in times.items()),
        )
        for batch, times in enumerate(points, start=1)
    )
    return Profile(name="p", key=KEY, entries=(Entry(shape=shape_of(LAYER), points=made),))


@pytest.mark.parametrize(
    ("eligible", "names", "passed"),
    [
        ("UAB", "UBA", ""),  # first by default, and never timed: it stays first
        ("AUB", "BUA", "U"),
        ("ABU", "BAU", ""),
        ("AUVB", "BUVA", "UV"),
    ],
)
def test_a_backend_that_was_not_timed_keeps_its_place(
    eligible: str, names: str, passed: str
) -> None:
    """The timed ones share out the places that they held among themselves."""
    order = measured_order(sparse({"A": 9.0, "B": 3.0}), LAYER, list(eligible))
    assert order is not None
    assert "".join(order.names) == names
    assert (order.fastest, set(order.because), order.passed) == ("B", {"A"}, set(passed))


def test_backends_that_were_timed_at_no_common_point_keep_the_default_order() -> None:
    """A time at one batch says nothing beside a time at another."""
    apart = sparse({"A": 9.0}, {"B": 3.0})
    assert measured_order(apart, LAYER, ["A", "B"]) is None
    assert measured_order(sparse({"A": 9.0, "C": 1.0}, {"B": 3.0}), LAYER, ["A", "B", "C"]) is None


@pytest.mark.parametrize("weight", ["0", "-1", "1e999"])
def test_a_weight_that_is_not_positive_is_a_bad_entry(weight: str) -> None:
    """Its entry is left out, named, and the profile used without it."""
    text = msgspec.json.encode(sparse({"A": 1.0, "B": 2.0}, weight=7.25)).decode()
    read = parse(text.replace("7.25", weight).encode(), "p.json")
    assert read.entries == ()
    assert len(read.bad_entries) == 1
    assert "entries[0]" in read.bad_entries[0]


def test_two_timings_of_one_backend_at_one_point_are_a_bad_entry() -> None:
    """Which of them counts is not for the reader to guess."""
    text = msgspec.json.encode(sparse({"A": 1.0, "B": 2.0})).replace(b'"B"', b'"A"')
    assert "two timings" in parse(text, "p.json").bad_entries[0]


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ('"heads":4', '"heads":0', ">= 1"),
        ('"kv_heads":4', '"kv_heads":-1', ">= 1"),
        ('"batch":8', '"batch":1000000000000000000000000000000', "<= 1099511627776"),
        ('"batch":8', '"batch":4000000000000', "<= 1099511627776"),
        ('"context":1024', '"context":0', ">= 1"),
        ('"measured":"2026-11-20"', '"measured":"2026-02-30"', "must be a day"),
        ('"block_size":128', '"block_size":1000000000', "knobs.block_size must be the tokens"),
        ('"block_size":128', '"block_size":0', "from 1 to 65536, found 0"),
        ('"host_us":9.0', '"host_us":0.0', "host_us must be a time"),
    ],
)
def test_a_count_or_a_day_that_cannot_be_is_a_bad_entry(was: str, now: str, says: str) -> None:
    """Of heads, sequences and tokens there is at least one, and no number beyond all machines."""
    point = Point(
        phase="decode",
        batch=8,
        context=1024,
        measured="2026-11-20",
        timings=(Timing(backend="A", median_us=1.0, knobs={"block_size": 128}, host_us=9.0),),
    )
    shape = Shape(op="paged", heads=4, kv_heads=4, head_size=64)
    whole = Profile(name="p", key=KEY, entries=(Entry(shape=shape, points=(point,)),))
    text = msgspec.json.encode(whole).decode()
    assert parse(text.encode(), "p.json").entries
    assert was in text
    (bad,) = parse(text.replace(was, now).encode(), "p.json").bad_entries
    assert says in bad


@pytest.mark.parametrize(
    "day", ["2026-02-29", "2026-13-01", "2026-00-10", "26-1-1", "soon", "²026-01-01"]
)
def test_a_day_that_is_none_makes_a_document_unreadable(day: str) -> None:
    """The day of the document stands outside of its entries, so that nothing can be left out."""
    text = msgspec.json.encode(Profile(name="p", key=KEY, measured="2026-11-20")).decode()
    assert parse(text.encode(), "p.json").measured == "2026-11-20"
    assert parse(text.replace("2026-11-20", "2028-02-29").encode(), "p").measured == "2028-02-29"
    with pytest.raises(InputError, match=r"p\.json: not a profile: measured must be a day"):
        parse(text.replace("2026-11-20", day).encode(), "p.json")


def test_nothing_is_called_measured_that_was_not() -> None:
    """A pick that was never timed owes its place to the default order, and says so."""
    registry = backends()
    b3 = msgspec.structs.replace(
        registry.backends[0], name="B0", ranks=(Rank(platform="rocm", place=5),)
    )
    three = Registry((b3, *registry.backends))
    timed = sparse({"B1": 9.0, "B2": 3.0})
    decision = select(LAYER, machine(), three, profile=timed)
    assert decision.pick is not None
    assert (decision.pick.name, decision.pick.evidence) == ("B0", "default")
    assert [c.name for c in decision.candidates] == ["B0", "B2", "B1"]
    assert {one.evidence for one in decision.pick.beat} == {"default"}


def test_a_timed_pick_says_what_it_beat_by_time_and_what_it_only_passed() -> None:
    """B2 takes the place of B1, before a backend that nobody timed."""
    middle = msgspec.structs.replace(
        backends().backends[0], name="B15", ranks=(Rank(platform="rocm", place=15),)
    )
    three = Registry((*backends().backends, middle))
    pick = select(LAYER, machine(), three, profile=sparse({"B1": 9.0, "B2": 3.0})).pick
    assert pick is not None
    assert (pick.name, pick.evidence) == ("B2", "measured")
    assert pick.why.startswith("B2 over B1: 0.33x the time of B1")
    evidence = {one.name: (one.evidence, one.because) for one in pick.beat}
    assert evidence["B15"] == (
        "default",
        "not timed for this shape; a timed one stood before it",
    )


def test_a_shape_that_the_profile_does_not_hold_is_noted() -> None:
    """Only there: a shape with one usable timing is in the profile."""
    wide = msgspec.structs.replace(LAYER, kv_heads=8)
    timed = sparse({"B1": 9.0})
    assert select(wide, machine(), backends(), profile=timed).notes == (NOT_TIMED,)
    assert select(LAYER, machine(), backends(), profile=timed).notes == ()
    assert select(LAYER, machine(), backends()).notes == ()


def backends(*, b2_heads: int = 64) -> Registry:
    def declare(name: str, place: int, heads: int) -> Backend:
        return Backend(
            name=name,
            summary="invented",
            ops=("paged",),
            rules=(operation("paged"), head_sizes(heads)),
            ranks=(Rank(platform="rocm", place=place),),
        )

    return Registry((declare("B1", 10, 64), declare("B2", 20, b2_heads)))


def test_a_profile_reorders_what_is_eligible_and_says_by_how_much() -> None:
    """The registry's first choice loses to a measured faster one, with both ratios shown."""
    timed = profile((100.0, 73.0), (100.0, 59.0), names=("B1", "B2"))
    box = machine()
    assert select(LAYER, box, backends()).pick.name == "B1"  # type: ignore[union-attr]
    pick = select(LAYER, box, backends(), profile=timed).pick
    assert pick is not None
    assert (pick.name, pick.evidence) == ("B2", "measured")
    assert pick.why == (
        "B2 over B1: 0.66x the time of B1 over 2 points (0.59x at decode B=8, S=1k, "
        "0.73x at decode B=1, S=1k), measured 2026-08-01"
    )


def test_a_ratio_never_reads_as_nothing() -> None:
    """Two decimals, or two digits that count."""
    ratios = (1.0, 0.655, 0.1, 0.0962, 0.00312, 310.0)
    assert [*map(times_text, ratios)] == ["1.00x", "0.66x", "0.10x", "0.096x", "0.0031x", "310.00x"]


def test_a_profile_never_makes_an_ineligible_backend_eligible() -> None:
    """However fast it was, a backend that fails a rule is not picked."""
    timed = profile((100.0, 1.0), names=("B1", "B2"))
    decision = select(LAYER, machine(), backends(b2_heads=128), profile=timed)
    assert decision.pick is not None
    assert decision.pick.name == "B1"


def test_a_shape_that_was_not_timed_keeps_the_default_order() -> None:
    """No far neighbour decides."""
    timed = profile((100.0, 1.0), names=("B1", "B2"))
    wide = msgspec.structs.replace(LAYER, kv_heads=8)
    assert measured_order(timed, wide, ["B1", "B2"]) is None


def test_one_bad_entry_is_left_out_and_named() -> None:
    """The rest of the profile is used."""
    good = profile((2.0, 1.0), names=("B1", "B2"))
    document = msgspec.to_builtins(good)
    document["entries"] = [*document["entries"], {"shape": {"op": 7}, "points": []}]
    read = parse(msgspec.json.encode(document), "p.json")
    assert read.entries == good.entries
    assert len(read.bad_entries) == 1
    assert "entries[1]" in read.bad_entries[0]


def test_a_newer_minor_version_is_read_for_what_is_known() -> None:
    """Keys that this version has not heard of are ignored."""
    document = {**msgspec.to_builtins(profile(names=())), "schema": "attnctl.profile/1.9", "new": 1}
    assert parse(msgspec.json.encode(document), "p.json").key == KEY


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not a profile"),
        (b"[1]", "not a profile"),
        (
            b'{"schema": "attnctl.profile/2", "name": "x", "key": {"vendor": "a", "arch": "b"}}',
            "upgrade",
        ),
        (
            b'{"schema": "attnctl.profile/1", "name": "x", "key": {"vendor": 3, "arch": "b"}}',
            "$.key",
        ),
        (b"\xff\xfe", "this is UTF-16 text"),
        (b"{\xff\xfe", "not a profile"),
        (b'{"schema": "attnctl.profile/1", "key": ' + b"[" * 100_000, "not a profile"),
    ],
)
def test_a_file_that_is_no_profile_is_one_sentence(text: bytes, says: str) -> None:
    """Damage to the document as a whole is an input error that names the file."""
    with pytest.raises(InputError, match=r"p\.json") as error:
        parse(text, "p.json")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_entry_may_leave_out_the_value_width() -> None:
    """V is as wide as K where a profile does not say otherwise."""
    timed = profile((100.0, 1.0), names=("B1", "B2"))
    entry = timed.entries[0]
    short = msgspec.structs.replace(entry.shape, head_size_v=None)
    written = msgspec.structs.replace(timed, entries=(msgspec.structs.replace(entry, shape=short),))
    order = measured_order(written, LAYER, ["B1", "B2"])
    assert order is not None
    assert order.names == ("B2", "B1")


def failing(*rows: tuple[dict[str, float], str]) -> Profile:
    """A profile whose points time some backends, and at which others gave wrong results."""
    made = tuple(
        Point(
            phase="decode",
            batch=batch,
            context=1024,
            timings=tuple(Timing(backend=name, median_us=us) for name, us in times.items()),
            rejected=tuple(Rejected(backend=name, why="wrong") for name in wrong),
        )
        for batch, (times, wrong) in enumerate(rows, start=1)
    )
    return Profile(name="p", key=KEY, entries=(Entry(shape=shape_of(LAYER), points=made),))


def test_a_backend_that_failed_at_most_points_goes_behind_the_timed_ones() -> None:
    """Though it stands first by default, and was the fastest where it ran."""
    timed = failing(({"B": 9.0}, "A"), ({"B": 9.0, "A": 1.0}, ""), ({"B": 9.0}, "A"))
    order = measured_order(timed, LAYER, ["A", "B", "U"])
    assert order is not None
    assert order.names == ("B", "A", "U")
    assert order.because == {"A": "it was out of the running at 2 of 3 points"}


def test_a_backend_that_was_timed_at_few_points_is_not_judged_as_a_whole() -> None:
    """One lucky point among many does not reorder; the others are compared where all were timed."""
    points = [({"A": 5.0, "B": 4.0}, "")] * 4 + [({"A": 5.0, "B": 4.0, "C": 1.0}, "")]
    order = measured_order(failing(*points), LAYER, ["A", "B", "C"])
    assert order is not None
    assert order.names == ("B", "A", "C")


def test_at_a_point_where_the_first_failed_another_is_picked() -> None:
    """And where it ran, or nobody looked at it, it keeps its place."""
    timed = failing(({"B": 9.0}, "A"), ({"B": 9.0, "A": 1.0}, "A"), ({"B": 9.0}, ""))
    table = Picker(timed).table(shape_of(LAYER), ["A", "B"])
    assert [pick.backend for pick in table.points] == ["B", "A", "A"]
    assert table.points[0].because.startswith("the only one timed")
