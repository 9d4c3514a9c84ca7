"""Writes what the models of transformers are made of, for the cross-check of tools/zoo.py.

    PYTHONPATH=.zoo/venv/lib/python3.*/site-packages python-with-torch tools/zoo_built.py .zoo

Optional, since it needs torch: every default model is built on the meta device (no memory, no
weights), and the widths of its query, key and value projections are counted into built.json.
tools/zoo.py reads that file if it is there.
"""

from __future__ import annotations

import collections
import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

QUERY = (
    "q_proj",
    "query",
    "q_lin",
    "q",
    "to_q",
    "q_attn",
    "project_q",
    "projection_query",
    "query_proj",
    "linear_q",
    "Wq",
)
KEY = (
    "k_proj",
    "key",
    "k_lin",
    "k",
    "to_k",
    "project_k",
    "projection_key",
    "key_proj",
    "linear_k",
    "Wk",
)
VALUE = (
    "v_proj",
    "value",
    "v_lin",
    "v",
    "to_v",
    "project_v",
    "projection_value",
    "value_proj",
    "linear_v",
    "Wv",
)
FUSED = ("qkv", "qkv_proj", "query_key_value", "Wqkv", "wqkv", "att_proj", "in_proj_weight")
ATTENTION = re.compile("Attention|Attn", re.IGNORECASE)


def widths(module: Any) -> str | None:
    """ "Q/K/V" or "fused" widths of one attention module, or None where it has no such layers."""
    outputs = {
        re.sub(r"(\.linear)?\.weight$", "", name): list(parameter.shape)
        for name, parameter in module.named_parameters()
        if name.count(".") <= 2 and parameter.dim() >= 2
    }
    parts = [first(outputs, names) for names in (QUERY, KEY, VALUE)]
    if all(parts):
        return "/".join(str(width) for width in parts)
    fused = first(outputs, FUSED)
    if fused is None and "c_attn" in outputs:
        fused = outputs["c_attn"][-1]  # GPT-2's convolution keeps its weight transposed
    return None if fused is None else str(fused)


def first(outputs: dict[str, list[int]], names: tuple[str, ...]) -> int | None:
    return next((outputs[name][0] for name in names if name in outputs), None)


def model_class(config: Any) -> Any:
    """The bare model of a config class, by the auto table, else by its modelling module."""
    from transformers import AutoModel

    found = AutoModel._model_mapping.get(type(config), None)
    if found is not None:
        return found
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    own = [c for _, c in inspect.getmembers(module, inspect.isclass) if serves(c, type(config))]
    return next((c for c in own if c.__name__.endswith("Model")), own[0])


def serves(candidate: Any, config_class: type) -> bool:
    abstract = candidate.__name__.endswith("PreTrainedModel")
    return getattr(candidate, "config_class", None) is config_class and not abstract


def built(model_type: str) -> dict[str, int]:
    """Projection widths -> how many attention modules have them."""
    import torch
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type]()
    with torch.device("meta"):
        model = model_class(config)(config)
    found = (widths(m) for m in model.modules() if ATTENTION.search(type(m).__name__))
    return dict(collections.Counter(width for width in found if width is not None))


def main(target: Path) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    result: dict[str, dict[str, int]] = {}
    for model_type in CONFIG_MAPPING:
        try:
            result[model_type] = built(model_type)
        except Exception as error:  # a missing optional package, a default that does not build
            print(f"not built: {model_type}: {type(error).__name__}", file=sys.stderr)
    (target / "built.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
