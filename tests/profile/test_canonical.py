"""The written form: the same measurements give the same bytes, and what follows from them."""

from __future__ import annotations

import json
import random

import jsonschema
import msgspec
import pytest

from attnctl.documents.schema import json_schema
from attnctl.profile.canonical import canonical, encode
from attnctl.profile.document import parse
from attnctl.profile.keys import Versions
from attnctl.profile.values import Document, Entry, Point, Profile, Timing
from tests.profile.factory import profile

MODELS = ("llama-3.1-8b", "gpt-oss-20b")


def shuffled(document: Profile, seed: int) -> Profile:
    """The same measurements, met in another order."""
    dice = random.Random(seed)

    def mixed(values: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(dice.sample(values, len(values)))

    entries = [
        msgspec.structs.replace(
            entry,
            points=mixed(
                tuple(
                    msgspec.structs.replace(
                        point, timings=mixed(point.timings), rejected=mixed(point.rejected)
                    )
                    for point in entry.points
                )
            ),
            kernels=dict(mixed(tuple(entry.kernels.items()))),
        )
        for entry in document.entries
    ]
    return msgspec.structs.replace(document, entries=mixed(tuple(entries)))


@pytest.mark.parametrize("seed", range(5))
def test_the_same_measurements_give_the_same_bytes(seed: int) -> None:
    """In whatever order they were met."""
    document = profile(*MODELS)
    assert encode(shuffled(document, seed)) == encode(document)


def test_what_was_written_reads_back_and_is_written_alike() -> None:
    """Export and import round-trip byte for byte."""
    data = encode(profile(*MODELS))
    again = parse(data, "p.json")
    assert again == canonical(again)
    assert encode(again) == data
    assert again.bad_entries == ()


def test_a_written_profile_fits_the_published_schema() -> None:
    """The schema names the document's version and takes what is written."""
    schema = json.loads(json_schema("profile", Document))
    assert schema["$id"] == "urn:attnctl:profile/1"
    jsonschema.validate(json.loads(encode(profile(*MODELS))), schema)


def test_no_line_is_long_and_every_timing_stands_on_one() -> None:
    """A profile diffs well: one changed time is one changed line."""
    text = encode(profile(*MODELS)).decode()
    assert max(map(len, text.splitlines())) <= 180
    other = text.replace('"iqr_us":0.0', '"iqr_us":0.1', 1)
    changed = [a for a, b in zip(text.splitlines(), other.splitlines(), strict=True) if a != b]
    assert len(changed) == 1


def test_a_broken_entry_is_not_written_and_an_unknown_version_stays_unknown() -> None:
    """A version that is left out would fit every machine."""
    document = msgspec.structs.replace(
        profile(), bad_entries=("x",), versions=Versions(torch="unknown", triton="3.6.0")
    )
    written = json.loads(encode(document))
    assert "bad_entries" not in written
    assert written["versions"]["torch"] == "unknown"


def entry(*times: tuple[float, float, float], iqr: float = 0.0, runs: int = 9) -> Entry:
    """Points of (A, B, B's defaults), A first in the default order."""
    points = tuple(
        Point(
            phase="decode",
            batch=2**place,
            context=1024,
            timings=(
                Timing(backend="B", median_us=b, default_us=usual, iqr_us=iqr * b, runs=runs),
                Timing(backend="A", median_us=a, iqr_us=iqr * a, runs=runs),
            ),
        )
        for place, (a, b, usual) in enumerate(times)
    )
    return Entry(shape=profile().entries[0].shape, points=points, order=("A", "B"))


def written(one: Entry) -> Entry:
    (found,) = canonical(msgspec.structs.replace(profile(), entries=(one,))).entries
    return found


def test_the_pick_is_the_fastest_and_a_tie_goes_to_the_default() -> None:
    """Within two percent nothing is called a win."""
    found = written(entry((10.0, 9.9, 9.9), (10.0, 9.7, 9.7)))
    assert [point.pick for point in found.points] == ["A", "B"]
    assert [timing.backend for timing in found.points[0].timings] == ["A", "B"]


def test_the_gain_is_over_the_default_backend_with_its_defaults() -> None:
    """The geometric mean of 1 (a tie) and 2, with bounds that noise widens."""
    quiet, noisy = (written(entry((8.0, 8.0, 9.0), (8.0, 4.0, 9.0), iqr=i)) for i in (0.0, 0.2))
    assert quiet.gain == noisy.gain == pytest.approx(2**0.5, abs=1e-4)
    assert quiet.ci == (quiet.gain, quiet.gain)
    assert noisy.ci is not None
    assert noisy.ci[0] < 1.414 < noisy.ci[1]
    fewer = written(entry((8.0, 8.0, 9.0), (8.0, 4.0, 9.0), iqr=0.2, runs=3))
    assert fewer.ci is not None
    assert fewer.ci[0] < noisy.ci[0]


def test_a_shape_or_a_point_that_is_there_twice_is_written_once() -> None:
    """The later timing counts."""
    one, other = entry((8.0, 4.0, 9.0)), entry((8.0, 9.0, 9.0))
    twice = msgspec.structs.replace(profile(), entries=(one, other))
    (found,) = canonical(twice).entries
    (point,) = found.points
    assert point.pick == "A"
