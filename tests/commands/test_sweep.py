"""`attnctl select` for several models or machines: rows, labels, and nothing dropped."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from attnctl.machine import Machine
from attnctl.machines import load
from attnctl.render.labels import distinct
from tests.commands.running import LLAMA, MODELS, Answer, run

GPT_OSS = str(MODELS / "gpt-oss-20b.json")
MINICPM = str(MODELS / "minicpm3-4b.json")
GEMMA = str(MODELS / "gemma-3-27b.json")


def saved(path: Path, machine: Machine) -> str:
    path.write_bytes(msgspec.json.encode(machine))
    return str(path)


def rows(found: Answer) -> dict[str, str]:
    """First word of each line -> the line."""
    return {line.split("  ")[0]: line for line in found.out.splitlines() if line}


def test_a_machine_named_twice_is_two_rows() -> None:
    """By name and among all: it is asked twice, and its second row is told apart."""
    found = run("select", "-m", LLAMA, "--machine", "h200", "--machine", "all")
    assert found.code in (0, 1)
    assert {"h200", "h200 #2"} <= set(rows(found))


def test_two_boxes_of_one_name_keep_their_own_answers(tmp_path: Path) -> None:
    """Saved boxes that share a name are two rows of one model, each with its own pick."""
    boxes = [
        saved(tmp_path / f"{name}.json", msgspec.structs.replace(load(name), name="box"))
        for name in ("h200", "t4")
    ]
    words = [word for box in boxes for word in ("--machine", box)]
    found = run("select", "-m", GEMMA, *words)
    assert "sliding 0-61" in rows(found)["machine"]
    assert "sm_90" in rows(found)["box"]
    assert "sm_75" in rows(found)["box #2"]
    both = run("select", "-m", GEMMA, "-m", LLAMA, *words)
    assert rows(both)["machine"].split() == ["machine", "device", "gemma-3-27b", "llama-3.1-8b"]
    assert "sm_75" in rows(both)["box #2"]


def test_models_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    """Only as many folders as are needed, and a model given twice gets a number."""
    paths = []
    for folder in ("d1", "d2"):
        (tmp_path / folder / "x").mkdir(parents=True)
        paths.append(shutil.copy(LLAMA, tmp_path / folder / "x" / "config.json"))
    words = [word for path in (*paths, GEMMA, GEMMA) for word in ("-m", str(path))]
    found = run("select", *words, "--machine", "h200", "--profile", "none")
    head = rows(found)["machine"]
    assert [one for one in head.split("  ") if one.strip()][2:] == [
        *("d1/x", "d2/x", "gemma-3-27b", "gemma-3-27b #2")
    ]


def test_labels_are_numbered_from_the_second_on() -> None:
    """The first keeps its name."""
    assert distinct(["a", "b", "a", "a"]) == ["a", "b", "a #2", "a #3"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--machine", "h200", "--machine", "t4", "--what-if"), "--what-if: is shown for one"),
        (("--machine", "all", "--explain", "FLASHMLA"), "--explain: is shown for one model"),
        (("--machine", "h200", "--vllm-args", "--json"), "--vllm-args: prints flags, not JSON"),
        (("--machine", "h200", "--vllm-args", "--explain", "FLASHMLA"), "--explain: --vllm-args"),
        (("--machine", "h200", "--vllm-args", "--what-if"), "--what-if: --vllm-args"),
    ],
)
def test_what_an_answer_cannot_show_is_refused(words: tuple[str, ...], says: str) -> None:
    """Exit 2 and one sentence, before anything is worked out in vain."""
    found = run("select", "-m", LLAMA, *words)
    assert (found.code, found.out) == (2, "")
    assert says in found.err
    assert found.err.count("\n") == 1


def test_a_table_and_json_at_once_are_refused() -> None:
    """`list` gives one of its forms."""
    found = run("list", "--markdown", "--json")
    assert (found.code, found.out) == (2, "")


def test_the_json_of_a_sweep_holds_what_if() -> None:
    """JSON has room for it: each report carries its changes."""
    found = run(
        "select", "-m", LLAMA, "--machine", "h200", "--machine", "t4", "--what-if", "--json"
    )
    assert found.json["models"] == 1
    assert all(one["groups"][0]["what_if"] for one in found.json["reports"])


def test_an_engines_picks_are_named_as_such_beside_the_registrys() -> None:
    """The heading says whose they are; where the registry differs, both and the reason."""
    found = run(
        *("select", "-m", GPT_OSS, "-m", MINICPM, "--machine", "mi300x", "--machine", "h200"),
        *("--engine", "vllm"),
    )
    assert "picks of vllm 0.33.0" in found.out
    assert "ROCM_AITER_UNIFIED_ATTN (attnctl ROCM_AITER_FA" in rows(found)["mi300x"]
    assert "refuses (attnctl TRITON_MLA" in rows(found)["h200"]
    assert "refused: ValueError: no prefill backend takes latent widths 64, 32, 64" in found.out
    assert "where the engine and attnctl differ" in found.out
    assert "minicpm3-4b on h200" in found.out


def test_an_unmet_demand_names_itself_and_what_would_serve() -> None:
    """The cell says which backend was demanded in vain."""
    found = run(
        *("select", "-m", LLAMA, "--machine", "h200", "--machine", "a100"),
        *("--backend", "FLASHMLA", "--profile", "none"),
    )
    assert found.code == 1
    assert "none: FLASHMLA unmet, would be FLASH_ATTN" in rows(found)["h200"]


def test_a_fallback_names_what_it_stands_for() -> None:
    """Allowed to fall back, the cell says in place of what."""
    found = run(
        *("select", "-m", LLAMA, "--machine", "h200", "--machine", "a100"),
        *("--backend", "FLASHMLA", "--allow-fallback"),
    )
    assert found.code == 0
    assert "in place of FLASHMLA" in rows(found)["h200"]


def test_a_pick_without_a_kernel_is_marked() -> None:
    """What the single screen says of a planned kernel is said here too."""
    words = ("select", "-m", LLAMA, "--machine", "h200", "--machine", "a100")
    reports = run(*words, "--json").json["reports"]
    planned = any(not one["groups"][0]["winner"]["runnable"] for one in reports)
    assert ("(planned): not runnable yet" in run(*words).out) == planned


def test_machines_without_the_device_are_left_out_and_named() -> None:
    """The others are answered; the answer is no, because not all could be asked."""
    words = ("select", "-m", LLAMA, "--machine", "max1550", "--machine", "zen4", "--device", "1")
    found = run(*words)
    assert found.code == 1
    assert "--device 1: zen4: has only device 0" in found.out
    assert "max1550" in rows(found)
    assert "zen4" not in rows(found)
    many = run(*words, "--json")
    assert many.json["left_out"] == ["--device 1: zen4: has only device 0"]
    assert [one["machine"]["name"] for one in many.json["reports"]] == ["max1550"]
    assert (many.code, many.json["exit_code"]) == (1, 1)


def test_a_device_that_no_machine_has_is_a_wrong_option() -> None:
    """Nothing could be answered: exit 2."""
    found = run("select", "-m", LLAMA, "--machine", "zen4", "--machine", "h200", "--device", "1")
    assert (found.code, found.out) == (2, "")
    assert "zen4 has only device 0" in found.err


def test_a_demand_for_layers_that_are_not_there_is_unmet() -> None:
    """A sweep and a single answer say which demand, and exit 1."""
    words = ("select", "-m", LLAMA, "--machine", "h200", "--backend", "mla=FLASHMLA")
    one = run(*words)
    assert one.code == 1
    assert "--backend mla=FLASHMLA: the model has no mla layers, only full" in one.last_line
    many = run(*words, "--machine", "a100")
    assert many.code == 1
    assert "--backend mla=FLASHMLA: the model has no mla layers, only full" in many.out
    assert run(*words, "--allow-fallback").code == 0
