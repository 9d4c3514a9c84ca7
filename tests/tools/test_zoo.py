"""The runner over default configs: what it counts, what it reports, when it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnctl.exits import InputError
from attnctl.model import read_model
from attnctl.model.spec import ModelSpec
from tools.zoo import main, show
from tools.zoo_check import Outcome, Report, judge_all

SIZES = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 3}
LLAMA = {"model_type": "llama", **SIZES}
CONFIGS = {
    "llama": LLAMA,
    "bert": {"model_type": "bert", **SIZES},
    "resnet": {"model_type": "resnet", "depths": [3, 4, 6, 3]},
    "reformer": {"model_type": "reformer", **SIZES},
    "llava": {"model_type": "llava", "text_config": LLAMA},
}
OPINIONS = {
    "llama": {
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "mixers": ["LlamaAttention"],
        "tasks": ["causal_lm"],
    },
    "resnet": {"mixers": []},
}


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    return filled(tmp_path, CONFIGS, OPINIONS)


def filled(folder: Path, configs: dict[str, Any], opinions: dict[str, Any]) -> Path:
    """`folder` with the files that a dump leaves."""
    (folder / "configs").mkdir()
    for name, config in configs.items():
        (folder / "configs" / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "opinions.json").write_text(json.dumps(opinions), encoding="utf-8")
    return folder


def statuses(report: Report) -> dict[str, str]:
    return {outcome.model_type: outcome.status for outcome in report.outcomes}


def test_read_refused_and_without_layers_are_counted_apart(zoo: Path) -> None:
    """A refusal counts against the reader, a model without attention does not."""
    report = judge_all(zoo, read_model)
    assert statuses(report) == {
        "llama": "read",
        "bert": "read",
        "llava": "read",
        "resnet": "none",
        "reformer": "refused",
    }
    assert report.with_layers == 4
    assert not report.passed, "one of four is more than a tenth"


def test_a_tenth_may_be_refused_and_no_more() -> None:
    """The threshold is on those with attention or state layers."""
    read = tuple(Outcome(model_type=f"m{i}", status="read") for i in range(9))
    none = tuple(Outcome(model_type=f"n{i}", status="none") for i in range(20))
    refused = Outcome(model_type="r", status="refused", text="no")
    assert Report((*read, *none, refused)).passed
    assert not Report((*read[:8], *none, refused)).passed


def test_a_crash_fails_the_run_and_keeps_its_trace(zoo: Path) -> None:
    """Whatever the reader raises beside InputError is a fault of ours."""

    def broken(path: Path) -> ModelSpec:
        if path.stem == "bert":
            raise KeyError("hidden_size")
        return read_model(path)

    report = judge_all(zoo, broken)
    (crash,) = report.having("crash")
    assert crash.model_type == "bert"
    assert crash.text.strip().endswith("KeyError: 'hidden_size'")
    assert not report.passed
    assert "KeyError: 'hidden_size'\n    bert" in show(report)


def test_a_reading_that_differs_from_transformers_is_reported(tmp_path: Path) -> None:
    """Depth, heads, KV heads and head size are compared."""
    opinion = OPINIONS["llama"] | {"num_hidden_layers": 4, "head_dim": 32}
    report = judge_all(filled(tmp_path, {"llama": LLAMA}, {"llama": opinion}), read_model)
    assert [outcome.odd for outcome in report.odd] == [
        (
            "layers: ours ['3'], transformers 4",
            "head size: ours ['64'], transformers 32",
        )
    ]


def test_windows_and_full_layers_are_compared(tmp_path: Path) -> None:
    """A window that we miss, and the layers that it holds for."""
    opinion = {
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    }
    report = judge_all(filled(tmp_path, {"llama": LLAMA}, {"llama": opinion}), read_model)
    (outcome,) = report.odd
    assert outcome.odd == (
        "window: ours [], transformers 128",
        "full layers: ours [0, 1, 2], transformers [1, 2]",
    )


def test_an_encoder_that_transformers_generates_with_is_reported(tmp_path: Path) -> None:
    """The task tables of transformers tell decoders from encoders."""
    vit = {"model_type": "my_vision_encoder", **SIZES}
    opinions = {"my_vision_encoder": {"tasks": ["causal_lm"]}}
    report = judge_all(filled(tmp_path, {"my_vision_encoder": vit}, opinions), read_model)
    (outcome,) = report.odd
    assert outcome.odd == ("kind: ours has no causal layers, transformers generates with it",)


def test_a_known_difference_is_only_counted(tmp_path: Path) -> None:
    """BERT generates with is_decoder alone; that is explained once and for all."""
    opinions = {"bert": {"tasks": ["causal_lm"]}}
    report = judge_all(filled(tmp_path, {"bert": CONFIGS["bert"]}, opinions), read_model)
    assert not report.odd
    assert [outcome.model_type for outcome in report.explained] == ["bert"]


def test_no_layers_is_doubted_where_the_source_names_some(tmp_path: Path) -> None:
    """Said to have none, while the modelling file has a class for it."""
    opinions = {"resnet": {"mixers": ["ResNetAttention"]}}
    report = judge_all(filled(tmp_path, {"resnet": CONFIGS["resnet"]}, opinions), read_model)
    assert [outcome.model_type for outcome in report.doubtful] == ["resnet"]
    assert "resnet: ResNetAttention" in show(report)


def test_layers_that_the_built_model_does_not_have_are_reported(tmp_path: Path) -> None:
    """Three layers of four heads of 64: plain, gated or fused projections will do."""
    folder = filled(tmp_path, {"llama": LLAMA}, {})
    for widths, odd in (
        ({"256/256/256": 3}, ()),
        ({"512/256/256": 1, "768": 2}, ()),
        ({"256/64/64": 3}, ("built: 3 layers of 4/4x64 wanted, 0 are there",)),
    ):
        (folder / "built.json").write_text(json.dumps({"llama": widths}), encoding="utf-8")
        assert judge_all(folder, read_model).outcomes[0].odd == odd


def test_what_transformers_cannot_build_is_named(tmp_path: Path) -> None:
    """A default config that does not exist is neither read nor refused."""
    folder = filled(tmp_path, {"llama": LLAMA}, {})
    failed = {"broken": "ValueError: no such thing"}
    (folder / "failed.json").write_text(json.dumps(failed), encoding="utf-8")
    report = judge_all(folder, read_model)
    assert report.unbuilt == failed
    assert "broken: ValueError: no such thing" in show(report)


def test_evidence_of_a_composite_is_that_of_its_parts(tmp_path: Path) -> None:
    """A wrapper's own source names no attention class."""
    opinions = {"llava": {"mixers": []}, "llama": {"mixers": ["LlamaAttention"]}}
    report = judge_all(filled(tmp_path, {"llava": CONFIGS["llava"]}, opinions), read_model)
    assert report.outcomes[0].evidence == ("LlamaAttention",)


def test_equal_reasons_are_shown_once() -> None:
    """File and model type are taken out of the sentence."""

    def refused(name: str) -> Outcome:
        return Outcome(
            model_type=name, status="refused", text=f"/a/b/{name}.json: {name} has no heads"
        )

    text = show(Report((refused("one"), refused("two"))))
    assert "this model type has no heads\n    one, two" in text


def test_the_command_judges_an_existing_dump_and_writes_json(
    zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--run-only needs no network; the exit code says whether the reader is good enough."""
    target = zoo / "result.json"
    code = main(["--run-only", "--folder", str(zoo), "--json", str(target)])
    assert code == 1
    result = json.loads(target.read_text("utf-8"))
    assert result["passed"] is False
    assert {o["model_type"] for o in result["outcomes"]} == set(CONFIGS)
    assert "model types                          5" in capsys.readouterr().out


def test_an_empty_folder_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing judged is not a pass."""
    assert main(["--run-only", "--folder", str(tmp_path)]) == 2
    assert "holds no configs" in capsys.readouterr().out


def test_refusals_are_input_errors() -> None:
    """The runner tells a refusal from a crash by the type of the error."""
    with pytest.raises(InputError):
        read_model(CONFIGS["reformer"])
