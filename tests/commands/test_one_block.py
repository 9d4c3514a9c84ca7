"""`attnctl select` on one block size for all layers: the note, the JSON, the flags of an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnctl.layer import Options, layer_of
from attnctl.model import read_model
from attnctl.profile.document import key_of, shape_of
from attnctl.profile.values import Entry, Point, Profile, Timing
from tests.commands.running import MODELS, run
from tests.profile.factory import machine, write

GPT_OSS = str(MODELS / "gpt-oss-20b.json")
IN_ONE = ("select", "-m", GPT_OSS, "--machine", "h200")


def two_sizes(tmp_path: Path) -> str:
    """Windowed layers timed on 16 and 128, full ones on 128 with the defaults on 16."""
    spec = read_model(GPT_OSS)
    of = [shape_of(layer_of(spec, group, Options())) for group in spec.groups]
    wide = {"block_size": 128}
    places = {"phase": "decode", "batch": 1, "context": 1024}
    timings = (
        Timing(backend="FLASH_ATTN", median_us=20.0),
        Timing(backend="TRITON_ATTN", median_us=10.0),
    )
    beside = (
        Timing(backend="FLASH_ATTN", median_us=13.0, knobs=wide),
        Timing(backend="TRITON_ATTN", median_us=14.0, knobs=wide),
    )
    windowed = Point(**places, timings=timings, others=beside)
    timings = (
        Timing(backend="FLASH_ATTN", median_us=150.0, knobs=wide, default_us=160.0),
        Timing(backend="TRITON_ATTN", median_us=100.0, knobs=wide, default_us=130.0),
    )
    full = Point(**places, timings=timings)
    entries = (Entry(shape=of[0], points=(windowed,)), Entry(shape=of[1], points=(full,)))
    box = machine("h200")
    document = Profile(name="p", key=key_of(box, box.gpus[0]), entries=entries)
    return str(write(tmp_path / "p.json", document))


def test_select_names_what_one_block_size_for_all_layers_costs(tmp_path: Path) -> None:
    """In one note of the screen, narrow or piped, and with every figure in the JSON."""
    asked = (*IN_ONE, "--profile", two_sizes(tmp_path))
    note = (
        "note: blocks of 16 and 128 tokens; serving engines have one for all layers (--block-size "
        "same takes 128): 16 costs at most 1.27x the time over 1 point (defaults alone were timed "
        "for full 1-23 step 2), 128 costs 1.03x the time over 1 point"
    )
    assert note in run(*asked).out.splitlines()
    narrow = run(*asked, width=80).out
    assert note in " ".join(narrow.split())
    assert max(map(len, narrow.splitlines())) <= 80
    found = run(*asked, "--json").json["one_block"]
    assert (found["own"], found["best"], found["taken"]) == ([16, 128], 128, False)
    assert [round(one["ratio"], 4) for one in found["sizes"]] == [1.2727, 1.0273]
    assert found["sizes"][0]["plain"] == [1]
    assert run(*asked, "--profile", "none", "--json").json["one_block"] is None


def test_one_block_size_is_taken_where_it_is_asked_for(tmp_path: Path) -> None:
    """Picks, pages, the map and the engine's flags are all of that size."""
    asked = (*IN_ONE, "--profile", two_sizes(tmp_path), "--block-size", "same")
    found = run(*asked, "--map", "--json").json
    assert [group["pick"] for group in found["groups"]] == ["FLASH_ATTN", "TRITON_ATTN"]
    assert [group["cost"]["block_size"] for group in found["groups"]] == [128, 128]
    assert [group["map"][0]["time_us"] for group in found["groups"]] == [13.0, 100.0]
    assert found["options"]["block_size"] == 128
    assert found["one_block"]["taken"] is True
    flags = run(*asked, "--vllm-args")
    assert flags.out.endswith(" --block-size 128\n")
    assert "one block size for all layers, 128 tokens" in flags.err


@pytest.mark.parametrize("box", ["rtx5090", "mi300x"])
@pytest.mark.parametrize("name", ["deepseek-v3.2", "gpt-oss-20b"])
def test_an_engine_keeps_its_own_size_where_none_was_timed(name: str, box: str) -> None:
    """Its kernels want 64 tokens there, and the 16 that those here have would end in none."""
    asked = ("select", "--model", MODELS / f"{name}.json", "--machine", box, "--profile", "none")
    alone, same = (run(*asked, *more, "--vllm-args") for more in ((), ("--block-size", "same")))
    assert alone.code == 0
    assert (same.code, same.out) == (alone.code, alone.out)


def test_a_block_size_that_was_not_timed_is_said_beside_the_pick(tmp_path: Path) -> None:
    """The field's order decides then, and no knob of other blocks is shown."""
    asked = (*IN_ONE, "--profile", two_sizes(tmp_path), "--block-size", "64")
    found = run(*asked, "--map", "--json").json
    assert [group["winner"]["evidence"] for group in found["groups"]] == ["default", "default"]
    assert [group["map"] for group in found["groups"]] == [[], []]
    said = "timed with 16 and 128 tokens in a block, and not with 64"
    assert [group["notes"] for group in found["groups"]] == [[said], [said]]
