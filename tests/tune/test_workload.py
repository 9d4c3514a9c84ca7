"""Workloads: named grids, files, and what is wrong with one in a sentence."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from attnctl.exits import InputError
from attnctl.tune.duration import seconds
from attnctl.tune.workload import WORKLOADS, Load, read_workload


@pytest.mark.parametrize(
    ("name", "batches", "contexts", "prompts"),
    [
        ("chat", (1, 256), (250, 8150), (128, 4096)),
        ("long-context", (1, 16), (8150, 130400), (512, 32768)),
        ("batch", (64, 512), (500, 4000), (512, 2048)),
    ],
)
def test_each_named_workload_spans_its_ranges(
    name: str, batches: tuple[int, int], contexts: tuple[int, int], prompts: tuple[int, int]
) -> None:
    """The least and the most of each axis of decode, and of new tokens of prefill."""
    loads = read_workload(name)
    decode = [load for load in loads if load.phase == "decode"]
    prefill = [load for load in loads if load.phase == "prefill"]
    assert (min(x.batch for x in decode), max(x.batch for x in decode)) == batches
    assert (min(x.context for x in decode), max(x.context for x in decode)) == contexts
    assert (min(x.query for x in prefill), max(x.query for x in prefill)) == prompts
    assert any(x.query == 512 and x.context > 512 for x in prefill)


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_point_of_decode_is_far_from_its_neighbours(name: str) -> None:
    """Steps of four at most: between two of them everything is within twofold of one."""
    decode = [load for load in WORKLOADS[name] if load.phase == "decode"]
    for axis in ("batch", "context"):
        steps = sorted({getattr(load, axis) for load in decode})
        assert all(math.log2(b / a) <= 2 for a, b in pairwise(steps))


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_context_of_decode_is_a_multiple_of_a_tile(name: str) -> None:
    """A window that ends with a tile needs one tile less than anywhere else."""
    decode = [load for load in WORKLOADS[name] if load.phase == "decode"]
    assert all(load.context % 64 for load in decode)


def test_a_file_gives_its_points(tmp_path: Path) -> None:
    """Left out: one new token, weight 1."""
    file = tmp_path / "w.json"
    file.write_text(
        '[{"phase": "decode", "batch": 8, "context": 4096},'
        '{"phase": "prefill", "batch": 1, "context": 2048, "query": 512, "weight": 3}]'
    )
    assert read_workload(str(file)) == (
        Load(phase="decode", batch=8, context=4096),
        Load(phase="prefill", batch=1, context=2048, query=512, weight=3),
    )


DECODE = '{"phase": "decode", "batch": 8, "context": 64'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "it lists no points"),
        ("{", "not a workload"),
        ('[{"phase": "train", "batch": 1, "context": 1}]', "Invalid enum value 'train'"),
        (f'[{DECODE}, "contexts": 3}}]', "unknown field `contexts`"),
        (f'[{DECODE}, "query": 0}}]', "[0].query is 0: must be from 1"),
        (f'[{DECODE}, "query": 65}}]', "65 new tokens are more than its context of 64"),
        (f'[{DECODE}, "weight": 0}}]', "weight is 0.0: must be a positive number"),
        (f'[{DECODE}, "weight": 1e10}}]', "[0].weight is 10000000000.0: must be a positive number"),
        (f'[{DECODE}, "weight": 1e-10}}]', "from 1e-09 to 1e+09"),
        (
            '[{"phase": "prefill", "batch": 1, "context": 64}]',
            "a prefill of 1 new token is a decode",
        ),
        (f"[{DECODE}}}, {DECODE}}}]", "[1] is there twice: decode B=8, S=64"),
        ('[{"phase": "decode", "batch": 99999999999, "context": 1}]', "[0].batch is 99999999999"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(
    tmp_path: Path, text: str, says: str
) -> None:
    """One sentence that names the file."""
    file = tmp_path / "w.json"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_workload(str(file))
    assert says in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_misspelt_name_gets_the_nearest() -> None:
    """chatt is chat."""
    with pytest.raises(InputError, match="Did you mean chat"):
        read_workload("chatt")


@pytest.mark.parametrize(
    ("text", "wanted"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("45", 45), (" 2 m ", 120)]
)
def test_a_time_is_read_as_people_write_it(text: str, wanted: float) -> None:
    """Seconds, minutes, hours."""
    assert seconds(text, "--budget") == wanted


@pytest.mark.parametrize("text", ["", "-3s", "ten", "10x", "0", "nan", "1e9h", "99999h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """With the option that it stood behind."""
    with pytest.raises(InputError, match="--budget"):
        seconds(text, "--budget")
