"""Writes the default config of every model type of the installed transformers, for tools/zoo.py.

Runs inside the scratch environment, which has transformers and no torch. Beside each config goes
what transformers itself says about it, and what its modelling source shows: the other opinion
that the cross-check of tools/zoo.py needs.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

# classes that mix tokens, by the names that modelling files give them
MIXER_CLASS = re.compile(
    r"^class \w*(?:Attention|Attn|Mamba|SSM|Mixer|DeltaNet|DeltaRule|ShortConv|RgLru|RecurrentBlock"
    r"|mLSTM|sLSTM|LSTMCell|Lightning|Rwkv|WKV)\w*\b",
    re.MULTILINE | re.IGNORECASE,
)
READ_ATTRIBUTES = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_size",
    "sliding_window",
    "layer_types",
    "is_encoder_decoder",
)


def plain(value: Any) -> Any:
    """`value` where JSON has a form for it, else its text (dtypes, enums)."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value


def opinion(config: Any) -> dict[str, Any]:
    """What transformers says of the decoder part: its attribute_map'ed names and their values."""
    try:
        text = config.get_text_config(decoder=True)
    except ValueError as error:  # several text configs and no way to choose
        return {"error": str(error)}
    return {"class": type(text).__name__} | {
        name: attribute(text, name) for name in READ_ATTRIBUTES
    }


def attribute(config: Any, name: str) -> Any:
    """The value of `name`, or "per layer" where transformers refuses a single answer."""
    try:
        return plain(getattr(config, name, None))
    except RuntimeError:
        return "per layer"


def mixer_classes(config_class: type) -> list[str]:
    """Names of token-mixing classes in the modelling file beside `config_class`, unimported."""
    package, _, module = config_class.__module__.rpartition(".")
    stem = module.replace("configuration_", "modeling_", 1)
    spec = importlib.util.find_spec(package)
    folder = Path(next(iter(spec.submodule_search_locations or ()))) if spec else Path()
    source = folder / f"{stem}.py"
    if not source.is_file():
        return []
    return sorted({match.split()[1] for match in MIXER_CLASS.findall(source.read_text("utf-8"))})


def tasks(package: Path) -> dict[str, list[str]]:
    """Model type -> the task tables of transformers that name it, read from the source.

    Importing that module needs torch; its tables are plain literals.
    """
    tree = ast.parse((package / "models" / "auto" / "modeling_auto.py").read_text("utf-8"))
    found: dict[str, list[str]] = {}
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        table = node.targets[0].id
        if not table.endswith("_MAPPING_NAMES") or not isinstance(node.value, ast.Call):
            continue
        task = table.removesuffix("_MAPPING_NAMES").removeprefix("MODEL_FOR_").lower()
        for pair in ast.walk(node.value):
            if isinstance(pair, ast.Tuple) and isinstance(pair.elts[0], ast.Constant):
                found.setdefault(str(pair.elts[0].value), []).append(task)
    return found


def dump(target: Path) -> None:
    """Writes one file per model type, and in failed.json what could not be built."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    (target / "configs").mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    opinions: dict[str, Any] = {}
    by_task = tasks(Path(transformers.__file__).parent)
    for model_type in CONFIG_MAPPING:
        try:
            config_class = CONFIG_MAPPING[model_type]
            config = config_class()
            text = json.dumps(config.to_dict(), default=str, indent=1, sort_keys=True)
        except Exception as error:
            failed[model_type] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            continue
        (target / "configs" / f"{model_type}.json").write_text(text + "\n", encoding="utf-8")
        opinions[model_type] = opinion(config) | {
            "mixers": mixer_classes(config_class),
            "tasks": by_task.get(model_type, []),
        }
    (target / "opinions.json").write_text(json.dumps(opinions, indent=1), encoding="utf-8")
    (target / "failed.json").write_text(json.dumps(failed, indent=1), encoding="utf-8")


if __name__ == "__main__":
    dump(Path(sys.argv[1]))
