"""Where a choice changes along one axis, found to the token."""

from __future__ import annotations

from math import log2

import msgspec
import pytest

from attnctl.exits import InputError
from attnctl.layer import Options
from attnctl.model import read_model
from attnctl.profile.document import shape_of
from attnctl.profile.pick import FAR, Picker
from attnctl.profile.values import Entry, Point, Profile, Timing
from attnctl.registry import load
from attnctl.select import eligible_names, select
from attnctl.selection.sensitivity import Ask, head_size_decision, map_group, sweep_group
from attnctl.selection.sweep import read_ask
from attnctl.selection.timed import Span
from tests.commands.running import LLAMA
from tests.profile.factory import layers, machine, profile

(LAYER,) = layers("llama-3.1-8b")
BOX = machine("h100")
DECISION = select(LAYER, BOX, load())


def at(context: int, fastest: str) -> Point:
    """A decode point at which one of two backends takes half the time."""
    timings = (
        Timing(backend=name, median_us=10.0 if name == fastest else 20.0)
        for name in ("FLASH_ATTN", "TRITON_ATTN")
    )
    return Point(phase="decode", batch=8, context=context, timings=tuple(timings))


TIMINGS = at(1, "TRITON_ATTN").timings


def timed(*points: Point) -> Profile:
    entry = Entry(shape=shape_of(LAYER), points=points)
    return msgspec.structs.replace(profile(), entries=(entry,))


def swept(ask: str, document: Profile | None) -> tuple[Span, ...]:
    (group,) = read_model(LLAMA).groups
    resized = head_size_decision(read_model(LLAMA), group, BOX, load(), Options())
    return sweep_group(read_ask(ask), DECISION, LAYER, document, resized)


def test_the_breaks_are_where_the_nearest_point_changes() -> None:
    """Between 1k and 16k: at their geometric mean, 4k; 4x beyond the ends the default serves."""
    document = timed(at(1024, "TRITON_ATTN"), at(16384, "FLASH_ATTN"))
    spans = swept("context=1..131072,batch=8", document)
    found = [(span.first, span.last, span.backend, span.evidence) for span in spans]
    assert found == [
        (1, 255, "FLASH_ATTN", "default"),
        (256, 4095, "TRITON_ATTN", "measured"),
        (4096, 131072, "FLASH_ATTN", "measured"),
    ]


def test_each_end_of_a_span_is_what_the_table_says_there() -> None:
    """And one token further it is another."""
    document = timed(at(1024, "TRITON_ATTN"), at(3000, "FLASH_ATTN"), at(9000, "TRITON_ATTN"))
    spans = swept("context=300..20000,batch=8", document)
    table = Picker(document).table(shape_of(LAYER), eligible_names(DECISION))
    assert len(spans) == 3
    for span in spans:
        for end in (span.first, span.last):
            assert table.pick("decode", 8, end).backend == span.backend
    assert [span.first for span in spans[1:]] == [span.last + 1 for span in spans[:-1]]
    assert abs(log2(spans[0].last) - (log2(1024) + log2(3000)) / 2) < 0.01


def test_another_batch_than_the_timed_has_one_span() -> None:
    """It is out of reach of every point."""
    (span,) = swept("context=1..131072,batch=64", timed(at(1024, "TRITON_ATTN")))
    assert (span.first, span.last, span.backend) == (1, 131072, "FLASH_ATTN")
    assert span.because == FAR


def test_without_a_profile_no_length_changes_the_choice() -> None:
    """The default order looks at none."""
    (span,) = swept("batch=1..4096", None)
    assert (span.backend, span.evidence) == ("FLASH_ATTN", "default")


def test_a_head_size_changes_it_by_rule() -> None:
    """Asked of the rules, not of the timings."""
    spans = swept("head_size=8..1024", None)
    assert spans[0].first == 8
    assert spans[0].backend == "FLASH_ATTN"
    assert spans[-1].last == 1024
    assert spans[-1].backend != "FLASH_ATTN"
    assert len({span.backend for span in spans}) >= 2


def test_the_map_holds_every_timed_point() -> None:
    """With the pick among what is eligible, and its time."""
    found = map_group(DECISION, LAYER, timed(at(1024, "TRITON_ATTN"), at(16384, "FLASH_ATTN")))
    assert [(one.context, one.backend, one.time_us) for one in found] == [
        (1024, "TRITON_ATTN", 10.0),
        (16384, "FLASH_ATTN", 10.0),
    ]
    assert map_group(DECISION, LAYER, None) == ()


def test_a_sweep_is_read_with_the_workload_beside_it() -> None:
    """Counts may be in k; prefill is of the whole context where no query is given."""
    assert read_ask("context=1k..128k, batch=8") == Ask(
        axis="context", low=1024, high=131072, batch=8
    )
    prefill = read_ask("batch=1..64,phase=prefill,context=2k")
    assert (prefill.phase, prefill.context, prefill.query) == ("prefill", 2048, 2048)


def test_what_is_not_said_goes_with_what_is() -> None:
    """A context holds the new tokens, and a short one is prefilled whole."""
    assert read_ask("query=1..16k").context == 16384
    assert read_ask("batch=1..8,query=8k").context == 8192
    assert read_ask("context=1..1k,phase=prefill").query == 1024
    assert read_ask("context=1..128k,phase=prefill").query == 4096


def test_without_a_phase_it_is_that_of_so_many_new_tokens() -> None:
    """As the library looks a batch up: up to 8 new tokens a sequence are a decoding step."""
    both = timed(
        Point(phase="decode", batch=1, context=512, query=4, timings=TIMINGS),
        Point(phase="prefill", batch=1, context=512, query=64, timings=TIMINGS),
    )
    spans = swept("query=1..256,context=512", both)
    assert [(span.first, span.last, span.backend, span.evidence) for span in spans] == [
        (1, 8, "TRITON_ATTN", "measured"),
        (9, 15, "FLASH_ATTN", "default"),
        (16, 256, "TRITON_ATTN", "measured"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no setting"),
        ("context", "no count"),
        ("context=8", "no range"),
        ("context=8..4", "ends before it starts"),
        ("context=1..4,batch=1..4", "two ranges"),
        ("contxt=1..4", "Did you mean context"),
        ("context=0..4", "no count"),
        ("context=1..4,batch=many", "no count"),
        ("context=1..4,phase=train", "no setting"),
        ("context=1..99999999999", "no count"),
        ("context=..", "no count"),
        ("context=1..4,batch=" + "9" * 5000, "no count"),
        ("context=1..4,context=2", "context is given twice"),
        ("context=1..4,batch=2,batch=3", "batch is given twice"),
        ("head_size=8..1000000", "head sizes go up to 4096"),
        ("head_size=8..64,batch=4", "batch has no say along head_size"),
        ("head_size=8..64,context=4", "context has no say along head_size"),
        ("head_size=8..64,phase=decode", "phase has no say along head_size"),
        ("query=1..4096,phase=decode", "at most 8 new tokens, found 4096"),
        ("batch=1..8,query=9,phase=decode", "at most 8 new tokens, found 9"),
        ("query=1..4096,context=2048", "4096 new tokens are more than the context of 2048"),
        ("batch=1..8,query=64,context=63", "64 new tokens are more than the context of 63"),
        ("context=1..1k,query=2k", "2048 new tokens are more than the context of 1024"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_one_sentence(text: str, words: str) -> None:
    """It names what is wrong and gives an example."""
    with pytest.raises(InputError, match=words):
        read_ask(text)
