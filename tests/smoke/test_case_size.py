"""A case that a machine's memory cannot hold is refused before a child is started for it."""

from __future__ import annotations

import pytest

from attnctl.exits import InputError
from attnctl.machine import Cpu, Machine
from attnctl.ops.case import Case, split_case
from attnctl.ops.case_size import least_bytes, memory_bytes, refuse_oversized
from attnctl.ops.catalog import all_cases, case_of

GIB = 1 << 30


def case(text: str) -> Case:
    return case_of(*split_case(text))


def test_inputs_cache_and_the_exact_result_are_counted() -> None:
    """3 and 5 tokens in pages of 16, 2 KV heads of 64 numbers each for K and V, 4 query heads."""
    one = case("paged(queries=1+2,contexts=3+5,heads=4,kv_heads=2,head_size=64,page=16)")
    inputs = 2 * (8 * 256 + 3 * 256)
    cache = 2 * 16 * 256
    assert least_bytes(one) == inputs + cache + 8 * (5 * 256 + 2 * 5 * 4)
    assert least_bytes(case("gdn()")) == 0


@pytest.mark.parametrize(
    "text",
    [
        "paged(queries=16777216,contexts=16777216)",
        "paged(queries=1,contexts=16000000)",
        "mla(queries=100000,contexts=100000)",
        "mla_sparse(queries=1,contexts=16777216)",
        "indexer(queries=1000000,contexts=1000000)",
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(text: str) -> None:
    """It names what the case takes and what there is; unknown memory refuses nothing."""
    with pytest.raises(InputError, match=r"GiB or more .* this machine has 16\.0;") as refused:
        refuse_oversized([case(text)], 16 * GIB)
    assert "\n" not in str(refused.value)
    refuse_oversized([case(text)], None)


def test_every_case_of_ours_fits_into_little() -> None:
    """And the sizes that the pages name fit into a common machine."""
    refuse_oversized(all_cases(), GIB)
    refuse_oversized([case("paged(queries=1,contexts=65536)")], 4 * GIB)


def test_what_a_container_allows_is_the_memory_that_there_is() -> None:
    """Of the host's and the limit's the less; unknown where neither could be read."""
    for total, limit, least in ((32, 8, 8), (8, 32, 8), (8, None, 8), (None, None, None)):
        cpu = Cpu(memory_total_bytes=total, memory_limit_bytes=limit)
        assert memory_bytes(Machine(name="box", cpu=cpu)) == least
