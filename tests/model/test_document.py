"""Where a config comes from, and one sentence for each way in which that can fail."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from attnctl.documents.files import SIZE_LIMIT
from attnctl.exits import InputError
from attnctl.model import read_model
from tests.model.configs import decoder

TEXT = json.dumps(decoder())


def refused(source: str | Path, stdin: bytes = b"") -> str:
    with pytest.raises(InputError) as problem:
        read_model(source, stdin=io.BytesIO(stdin))
    said = str(problem.value)
    assert "\n" not in said
    return said


def test_a_file_a_directory_and_standard_input_give_the_same_groups(tmp_path: Path) -> None:
    """Only the path differs."""
    file = tmp_path / "config.json"
    file.write_text(TEXT)
    specs = [read_model(file), read_model(str(tmp_path)), read_model("-", stdin=_bytes(TEXT))]
    assert specs[0].groups == specs[1].groups == specs[2].groups
    assert [spec.path for spec in specs] == [str(file), str(tmp_path), "-"]


def test_the_sidecar_of_a_directory_is_read(tmp_path: Path) -> None:
    """hf_quant_config.json lies beside config.json, whichever of the two is named."""
    (tmp_path / "config.json").write_text(TEXT)
    side = {"quantization": {"kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(side))
    assert read_model(tmp_path).kv_cache_dtype_from_checkpoint == "fp8"
    assert read_model(tmp_path / "config.json").kv_cache_dtype_from_checkpoint == "fp8"


def test_a_missing_file_and_an_empty_directory_are_told_apart(tmp_path: Path) -> None:
    """Each sentence names the path and what would do."""
    assert "does not exist; name a config.json" in refused(tmp_path / "nothing.json")
    assert f"{tmp_path} has no config.json" in refused(tmp_path)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"{\xff\xfe}", "is not UTF-8 text"),
        (TEXT.encode("utf-16"), ": this is UTF-16 text, and JSON is UTF-8: save it as UTF-8"),
        (b"{nonsense", "is not JSON: "),
        (b"", "is not JSON: "),
        (b"[1, 2]", "holds no JSON object"),
        (b'"text"', "holds no JSON object"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "holds a whole number of thousands of digits"),
        (b" " * (SIZE_LIMIT + 1), "larger than 16 MiB"),
    ],
)
def test_bytes_that_are_no_config_are_refused_in_one_sentence(raw: bytes, said: str) -> None:
    """From standard input here; files take the same way."""
    assert said in refused("-", raw)


def test_a_byte_order_mark_and_bare_infinities_are_accepted() -> None:
    """Real files have both."""
    text = TEXT[:-1] + ', "time_step_limit": [0.0, Infinity], "x": NaN}'
    assert read_model("-", stdin=io.BytesIO(b"\xef\xbb\xbf" + text.encode())).groups


def test_of_repeated_keys_the_last_counts_and_is_noted() -> None:
    """JSON allows them, and people edit files."""
    text = TEXT[:-1] + ', "num_attention_heads": 3, "num_key_value_heads": 1}'
    place = TEXT.index('"num_attention_heads"') + 1
    spec = read_model("-", stdin=_bytes(text))
    assert spec.groups[0].num_heads == 3
    said = f"num_attention_heads is given twice in line 1, at columns {place} and {len(TEXT) + 2}"
    assert f"{said}: the last one counts" in spec.notes


def test_many_repeated_keys_cost_no_more_than_a_look_at_each() -> None:
    """An object of forty thousand names, each twice: at most twenty are told of."""
    names = ", ".join(f'"key{number}": {number}' for number in range(40_000))
    begin = time.monotonic()
    spec = read_model("-", stdin=_bytes(f"{TEXT[:-1]}, {names}, {names}}}"))
    assert time.monotonic() - begin < 10
    assert sum("is given twice" in note for note in spec.notes) == 20


def test_a_sidecar_that_repeats_a_key_is_noted_under_its_name(tmp_path: Path) -> None:
    """As config.json itself."""
    (tmp_path / "config.json").write_text(TEXT)
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": 1,\n"quantization": {}}')
    (note,) = (note for note in read_model(tmp_path).notes if "twice" in note)
    assert note == (
        "hf_quant_config.json: quantization is given twice, in line 1 and in line 2: "
        "the last one counts"
    )


def test_half_a_character_does_not_stop_the_output() -> None:
    """A lone surrogate escape is legal JSON and no legal UTF-8."""
    text = TEXT[:-1] + ', "odd\\udc00key": 1}'
    assert "odd?key" in read_model("-", stdin=_bytes(text)).unknown


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('"x"', 'num_attention_heads is "x"; a whole number is expected'),
        ("true", "num_attention_heads is true; a whole number"),
        ("-4", "num_attention_heads is -4; a whole number from 0"),
        ("2.5", "num_attention_heads is 2.5; a whole number"),
        ("NaN", "num_attention_heads is nan; a whole number"),
        ("Infinity", "num_attention_heads is inf; a whole number"),
        ("1e300", "num_attention_heads is 1e+300; a whole number"),
        ("99999999999", "num_attention_heads is 99999999999; a whole number from 0"),
        ('{"a": 1}', "num_attention_heads is an object of 1 entries; a whole number"),
    ],
)
def test_a_count_that_is_none_is_refused_with_its_key_path(value: str, said: str) -> None:
    """The sentence shows file, path, value and what was expected."""
    text = json.dumps({"text_config": decoder()}).replace(
        '"num_attention_heads": 6', f'"num_attention_heads": {value}'
    )
    assert f"standard input: text_config.{said}" in refused("-", text.encode())


def test_a_depth_beyond_reason_is_refused_before_it_costs_memory() -> None:
    """Layers are listed one by one, so their number has a limit."""
    text = json.dumps(decoder(num_hidden_layers=10**8))
    assert "num_hidden_layers is 100000000; a whole number from 0 to 10000" in refused(
        "-", text.encode()
    )


def _bytes(text: str) -> io.BytesIO:
    return io.BytesIO(text.encode())
