"""Profiles as they are read: bad entries are left out, what is no profile is one sentence."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.exits import InputError
from attnctl.profile import Entry, Point, Profile, Timing, measured_order, parse
from attnctl.profile.values import Shape
from tests.profile.two_backends import KEY, LAYER, profile, sparse


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
        ('"block_size":128', '"block_size":"128"', "from 1 to 65536, found '128'"),
        ('"block_size":128', '"block_size":true', "from 1 to 65536, found True"),
        ('"default_block":64', '"default_block":0', ">= 1"),
        ('"default_block":64', '"default_block":549755813888', "<= 65536"),
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
        timings=(
            Timing(
                backend="A",
                median_us=1.0,
                knobs={"block_size": 128},
                default_us=2.0,
                default_block=64,
                host_us=9.0,
            ),
        ),
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
