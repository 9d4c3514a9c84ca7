"""Inputs that fuzzing found, each made small: what once gave a traceback, or took for ever."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from attnctl.exits import InputError
from attnctl.model import read_model
from attnctl.model.detection import DETECTORS
from attnctl.model.fla import EXPANSIONS
from attnctl.model.pairs import PAIRS
from attnctl.model.peculiar import PECULIAR
from attnctl.render.amounts import bytes_text
from tests.commands.running import LLAMA, run

ROOT = Path(__file__).parent.parent.parent
FUNNEL = {"model_type": "funnel", "d_head": 16, "n_head": 4, "d_model": 64}
SWIN = {"model_type": "swin", "depths": [2, 2, 2], "num_heads": [2, 4, 8], "embed_dim": 32}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (SWIN | {"embed_dim_multiplier": 1e17}, "embed_dim_multiplier is 1e+17; what grows to a w"),
        (
            SWIN | {"embed_dim_multiplier": -1},
            "embed_dim_multiplier is -1.0; what grows",
        ),
        (
            SWIN | {"depths": [1] * 2000, "num_heads": [2] * 2000},
            "embed_dim is 32; what grows to a width from 0 to 2147483648 in 2000 stages",
        ),
        (
            FUNNEL | {"block_sizes": [2**31]},
            " layers in all; at most 10000 are read",
        ),
        (FUNNEL | {"block_sizes": [9999, 9]}, "10010 layers in all; at most 10000 are read"),
        (
            {"model_type": "videoprism_vision_model", "hidden_size": 64, "num_attention_heads": 4}
            | {"num_spatial_layers": 9000, "num_temporal_layers": 9000},
            "18000 layers in all; at most 10000 are read",
        ),
        (
            {"model_type": "perceiver", "d_latents": 64, "num_self_attention_heads": 4}
            | {
                "num_cross_attention_heads": 4,
                "num_self_attends_per_block": 9000,
                "num_blocks": 9000,
            },
            "81000000 layers in all; at most 10000 are read",
        ),
        (
            {"model_type": "gpt_neo", "hidden_size": 64, "num_heads": 4, "num_layers": 24}
            | {"attention_types": [[["global"] * 9000, 9000]]},
            "attention_types[0] is a list of 2 entries; what makes at most 10000 layers",
        ),
    ],
)
def test_a_config_is_refused_in_one_sentence(
    tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    """The key path, its value and what is wanted."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    found = run("select", "--model", str(path), "--machine", "h200")
    assert (found.code, found.out) == (2, "")
    assert said in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize("ranks", ["65537", "99999999", "9" * 30])
def test_more_ranks_than_there_can_be_are_refused_at_once(ranks: str) -> None:
    """No divisor is looked for among so many."""
    begin = time.process_time()
    found = run("select", "--model", LLAMA, "--machine", "h200", "--tp", ranks)
    assert time.process_time() - begin < 5
    assert (found.code, found.out) == (2, "")
    assert found.err == f"attnctl: --tp {ranks}: must be at most 65536\n"


@pytest.mark.parametrize("words", [("show",), ("validate",)])
def test_a_name_of_four_hundred_letters_is_no_profile(words: tuple[str, ...]) -> None:
    """The file system has a sentence of its own for it, which nobody needs."""
    found = run("profile", *words, "9" * 400)
    assert (found.code, found.out) == (2, "")
    assert "of that name" in found.err


def test_as_many_ranks_as_there_can_be_are_answered() -> None:
    """With the most that would fit."""
    found = run("select", "--model", LLAMA, "--machine", "h200", "--tp", "65536")
    assert found.code == 1
    assert "--tp 32" in found.out


def test_a_machine_of_numbers_beyond_64_bits_is_refused_with_the_place(tmp_path: Path) -> None:
    """Such a number is a damaged file's; no amount is written of it."""
    machine = json.loads((ROOT / "profiles" / "machines" / "h200.json").read_text())
    machine["nvidia"]["gpus"][0]["memory"]["total_bytes"] = 10**400
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    answer = run("probe", "--machine", str(tmp_path / "machine.json"))
    assert answer.code == 2
    assert "nvidia.gpus[0].memory.total_bytes: a number of more than 64 bits" in answer.err


def test_an_amount_beyond_any_memory_is_said() -> None:
    """A driver may say anything."""
    assert bytes_text(2**80) == "more than 1024 ZiB"
    assert bytes_text(2**40) == "1 TiB"


@pytest.mark.parametrize("place", [("memory_bytes",), ("key", "unit_count"), ("conditions", "n")])
def test_a_profile_of_numbers_beyond_64_bits_is_refused(
    tmp_path: Path, place: tuple[str, ...]
) -> None:
    """They would overflow where they are shown."""
    document = json.loads((ROOT / "profiles" / "tuned" / "zen3.json").read_text())
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = 10**400
    (tmp_path / "profile.json").write_text(json.dumps(document))
    for words in (("verify", "--machine", "zen3"), ("show",), ("validate",)):
        path = str(tmp_path / "profile.json")
        answer = run("profile", words[0], path, *words[1:])
        assert (answer.code, answer.out) == (2, ""), words
        assert answer.err.count("\n") == 1
        assert "profile.json" in answer.err


KINDS = {
    "detection": (*DETECTORS, "maskformer"),
    "peculiar": tuple(PECULIAR),
    "linear": (*EXPANSIONS, "gated_deltanet"),
    "pairs": tuple(PAIRS),
}


def answer_to(document: dict[str, Any]) -> str:
    """The kinds of its layers, or the sentence that refuses it."""
    try:
        return ", ".join(group.kind for group in read_model(document).groups)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_a_family_is_read_at_the_level_that_names_it(kind: str) -> None:
    """Inside of another model, or with another inside, it is what it is, or a sentence."""
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
    for name in KINDS[kind]:
        for outer, inner in ((name, "llama"), (name, "zzz"), ("llava", name), ("zzz", name)):
            section = {"model_type": inner, **sizes}
            said = answer_to({"model_type": outer, **sizes, "text_config": section})
            assert said, (outer, inner)
            assert "\n" not in said
