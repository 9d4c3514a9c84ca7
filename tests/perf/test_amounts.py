"""The least that a case needs, worked out by hand."""

from __future__ import annotations

import pytest

from attnctl.ops.catalog import all_cases, case_of
from attnctl.perf.amounts import Needed, needed
from attnctl.perf.cases import serving_cases, serving_of
from attnctl.perf.rates import rate
from attnctl.smoke.trials import Ceiling, Timing


def test_a_decode_reads_its_context_once() -> None:
    """Two sequences of 100 and 50 tokens, 2 KV heads of 64 columns in 16 bits."""
    one = case_of("paged", {"queries": "1+1", "contexts": "100+50", "dtype": "float16"})
    found = needed(one)
    cached = 150 * 2 * (64 + 64) * 2
    ends = 2 * 8 * (64 + 64) * 2
    assert found.bytes == cached + ends
    assert found.flops == 2 * 8 * (64 + 64) * 150


def test_a_window_bounds_what_is_read() -> None:
    """A decode through a window of 16 reads 16 tokens."""
    one = case_of("paged", {"queries": "1", "contexts": "1000", "window": 16})
    assert needed(one).flops == 2 * 8 * 128 * 16


def test_a_prefill_has_the_pairs_of_a_triangle() -> None:
    """10 tokens see 55 pairs; both ways they see 100, and 3 of 10 through a window of 2 + 1."""
    causal = {"queries": "10", "contexts": "10"}
    per_pair = 2 * 8 * 128
    assert needed(case_of("paged", causal)).flops == per_pair * 55
    both = {**causal, "causal": False}
    assert needed(case_of("paged", both)).flops == per_pair * 100
    narrow = {**both, "window": 2, "window_right": 1}
    assert needed(case_of("paged", narrow)).flops == pytest.approx(per_pair * 30)


def test_a_sequence_without_new_tokens_needs_nothing() -> None:
    """Neither its context nor anything else is read."""
    assert needed(case_of("paged", {"queries": "0", "contexts": "64"})).bytes == 0


def test_a_step_reads_and_writes_each_state() -> None:
    """3 rows of 4 heads of 64 x 64 numbers in 32 bits, both ways, and the tokens' columns."""
    one = case_of("gdn", {"queries": "1+1+1", "initial": "all"})
    states = 2 * 3 * (4 * 64 * 64) * 4
    columns = 3 * (2 * 2 * 64 + 2 * 4 * 64 + 4 + 4) * 2
    assert needed(one).bytes == states + columns
    fresh = case_of("gdn", {"queries": "1+1+1", "initial": "fresh"})
    assert needed(fresh).bytes == states / 2 + columns


def test_verification_writes_a_state_after_each_token() -> None:
    """4 tokens with 3 drafts: one state read, four written."""
    few = case_of("mamba1", {"queries": "4", "initial": "all"})
    many = case_of("mamba1", {"queries": "4", "initial": "all", "drafts": 3})
    assert needed(many).bytes - needed(few).bytes == 3 * 128 * 16 * 4


def test_every_case_of_every_operation_amounts_to_something() -> None:
    """But for those without a token."""
    for one in (*all_cases(), *serving_cases()):
        found = needed(one)
        tokens = [int(x) for x in str(one.params.get("queries", "1")).split("+") if x]
        empty = not sum(tokens) or one.params.get("tokens") == 0
        assert (found.bytes > 0) is (not empty), one.text


def test_rates_agree_with_each_other() -> None:
    """8000 bytes and 10^6 operations in 10 us, where 4 us and 5 us would do."""
    ceiling = Ceiling(device="cpu", read_gbps=2.0, matrix_gflops=200.0)
    timing = Timing(median_us=10.0, iqr_us=1.0, runs=11, copies=2, clock="wall")
    found = rate(timing, Needed(bytes=8000.0, flops=1e6), ceiling)
    assert (found.gbps, found.gflops) == (0.8, 100.0)
    assert (found.floor_us, found.bound, found.share) == (5.0, "arithmetic", 0.5)
    assert rate(timing, Needed(), ceiling).bound == ""


def test_serving_cases_have_the_widths_of_the_cases_they_are_made_of() -> None:
    """A model's decode and prefill, and no drafts."""
    small = [case_of("paged", {"heads": 16, "kv_heads": 4, "window": 128})]
    found = serving_of(small)
    assert len(found) == 2
    assert {(one["heads"], one["kv_heads"], one["window"]) for one in found} == {(16, 4, 128)}
    assert {one["contexts"] for one in found} == {"+".join(["2048"] * 8), "1024"}
    step = case_of("gdn", {"queries": "4+2", "drafts": 3, "accepted": "1+3"})
    assert {one["drafts"] for one in serving_of([step])} == {0}
