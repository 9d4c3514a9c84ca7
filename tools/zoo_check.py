"""Judges what attnctl's reader makes of a folder of default configs: read, refused, crashed, odd.

Pure functions over files; tools/zoo.py fetches the configs and prints. The second opinion is what
transformers says of the same config (tools/zoo_dump.py wrote it down).
"""

from __future__ import annotations

import json
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from attnctl.exits import AttnctlError
from attnctl.model.spec import LayerGroup, ModelSpec
from tools.zoo_known import BUILT_OTHERWISE, EXPLAINED, SHARED_SOURCE

Read = Callable[[Path], ModelSpec]
NO_LAYERS = "no attention or state layers"
MOST_REFUSED = 0.10  # of the model types that have attention or state layers


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one model type.

    evidence: names of token-mixing classes that transformers' source shows, of it or of a model
    type nested in it. odd: differences between our reading and transformers' own.
    """

    model_type: str
    status: Literal["read", "refused", "none", "crash"]
    text: str = ""
    groups: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """unbuilt: model types whose default config transformers itself cannot make -> its error."""

    outcomes: tuple[Outcome, ...]
    unbuilt: dict[str, str] = {}

    def having(self, status: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == status]

    @property
    def with_layers(self) -> int:
        """Model types with attention or state layers: all but those recognised as having none."""
        return len(self.outcomes) - len(self.having("none"))

    @property
    def doubtful(self) -> list[Outcome]:
        """Those said to have no such layers although transformers' source names some."""
        none = self.having("none")
        return [o for o in none if o.evidence and o.model_type not in SHARED_SOURCE]

    @property
    def odd(self) -> list[Outcome]:
        """Those read otherwise than transformers' attributes say, and not yet explained."""
        return [o for o in self.outcomes if o.odd and o.model_type not in EXPLAINED]

    @property
    def explained(self) -> list[Outcome]:
        """Those that differ for a reason that is known."""
        return [o for o in self.outcomes if o.odd and o.model_type in EXPLAINED]

    @property
    def passed(self) -> bool:
        refused = len(self.having("refused"))
        return not self.having("crash") and refused <= MOST_REFUSED * self.with_layers


def judge(
    path: Path, read: Read, opinions: dict[str, Any], built: dict[str, Any] | None = None
) -> Outcome:
    """Reads one config and compares; never raises for what the reader does.

    built: what tools/zoo_built.py counted in the models themselves, where that was run.
    """
    model_type = path.stem
    evidence = tuple(mixers(json.loads(path.read_text("utf-8")), model_type, opinions))
    try:
        spec = read(path)
    except AttnctlError as error:
        status: Literal["none", "refused"] = "none" if NO_LAYERS in str(error) else "refused"
        return Outcome(model_type=model_type, status=status, text=str(error), evidence=evidence)
    except Exception:
        text = traceback.format_exc(limit=-3)
        return Outcome(model_type=model_type, status="crash", text=text, evidence=evidence)
    modules = (built or {}).get(model_type)
    odd = (
        *differences(spec, opinions.get(model_type, {})),
        *(() if modules is None or model_type in BUILT_OTHERWISE else unbuilt(spec, modules)),
    )
    groups = tuple(one_line(group) for group in spec.groups)
    return Outcome(model_type=model_type, status="read", groups=groups, evidence=evidence, odd=odd)


def judge_all(folder: Path, read: Read) -> Report:
    """Judges every config under `folder`/configs, with `folder`/opinions.json where it is there."""
    opinions = table(folder / "opinions.json")
    paths = sorted((folder / "configs").glob("*.json"))
    built = table(folder / "built.json")
    outcomes = tuple(judge(path, read, opinions, built) for path in paths)
    return Report(outcomes, table(folder / "failed.json"))


def table(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, or an empty one where there is no such file."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found


def mixers(config: dict[str, Any], model_type: str, opinions: dict[str, Any]) -> Iterator[str]:
    """Token-mixing classes of this model type, else of the model types nested in its config."""
    own = opinions.get(model_type, {}).get("mixers", [])
    yield from own
    if own:
        return
    for value in config.values():
        if isinstance(value, dict) and isinstance(value.get("model_type"), str):
            yield from mixers(value, value["model_type"], opinions)


def one_line(group: LayerGroup) -> str:
    """One group in a few words: kind, layers, heads/KV heads x widths, window."""
    parts = [f"{group.stack}:{group.kind}" if group.stack else group.kind, f"x{len(group.layers)}"]
    if group.num_heads:
        widths = f"{group.head_size}"
        if group.head_size_v not in (None, group.head_size):
            widths += f"/{group.head_size_v}"
        parts.append(f"{group.num_heads}/{group.num_kv_heads}x{widths}")
    if group.window:
        parts.append(f"w{group.window}")
    if group.state:
        parts.append(f"state={group.state.type}")
    return " ".join(parts)


ATTENTION = frozenset({"full", "sliding", "chunked", "blocksparse", "encoder_self"})


def differences(spec: ModelSpec, opinion: dict[str, Any]) -> Iterator[str]:
    """Where our reading and transformers' attributes disagree, one line each."""
    groups = [g for g in spec.groups if g.stack != "encoder"] or list(spec.groups)
    attention = [g for g in groups if g.kind in ATTENTION]
    if not opinion or not groups:
        return
    yield from compare_tasks(spec, opinion.get("tasks", []))
    layers = {layer for group in groups for layer in group.layers}
    yield from compare("layers", {len(layers)}, opinion.get("num_hidden_layers"))
    if any(group.kind.startswith("mla") for group in groups):
        return  # heads and head_dim of the file do not describe the cached latent
    if attention:
        heads = opinion.get("num_attention_heads")
        yield from compare("heads", {g.num_heads for g in attention}, heads)
        kv_heads = opinion.get("num_key_value_heads") or heads
        yield from compare("kv heads", {g.num_kv_heads for g in attention}, kv_heads)
        yield from compare("head size", {g.head_size for g in attention}, head_dim(opinion))
        yield from compare_windows(attention, opinion)
    yield from compare_layer_types(groups, opinion.get("layer_types"))


def unbuilt(spec: ModelSpec, modules: dict[str, int]) -> Iterator[str]:
    """Our attention layers whose projections the built model does not have as often."""
    wanted: Counter[tuple[int, int, int, int]] = Counter()
    for group in spec.groups:
        if group.num_heads and group.num_kv_heads and group.head_size and group.mla is None:
            value = group.head_size_v or group.head_size
            own = len(group.layers) - len(group.kv_shared_from)
            wanted[group.num_heads, group.num_kv_heads, group.head_size, value] += own
    for (heads, kv_heads, size, value), layers in wanted.items():
        query, key, values = heads * size, kv_heads * size, kv_heads * value
        plain, gated = f"{query}/{key}/{values}", f"{2 * query}/{key}/{values}"
        there = sum(modules.get(w, 0) for w in {plain, gated, str(query + key + values)})
        if there < layers:
            yield f"built: {layers} layers of {heads}/{kv_heads}x{size} wanted, {there} are there"


GENERATING = frozenset(
    {
        "causal_lm",
        "image_text_to_text",
        "multimodal_lm",
        "seq_to_seq_causal_lm",
        "speech_seq_2_seq",
    }
)


def compare_tasks(spec: ModelSpec, tasks: list[str]) -> Iterator[str]:
    """A model that generates has causal layers; one that only fills masks has none."""
    causal = any(group.causal and group.kind != "none" for group in spec.groups)
    generates = bool(GENERATING.intersection(tasks))
    if generates and not causal:
        yield "kind: ours has no causal layers, transformers generates with it"
    if causal and not generates and "masked_lm" in tasks:
        yield "kind: ours is causal, transformers only fills masks with it"


def compare(what: str, ours: set[int | None], theirs: Any) -> Iterator[str]:
    if isinstance(theirs, int) and theirs not in ours:
        yield f"{what}: ours {sorted(map(str, ours))}, transformers {theirs}"


def head_dim(opinion: dict[str, Any]) -> Any:
    """transformers' head_dim, else the quotient that its models compute."""
    stated = opinion.get("head_dim")
    if stated:
        return stated
    hidden, heads = opinion.get("hidden_size"), opinion.get("num_attention_heads")
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) else None


def compare_windows(attention: list[LayerGroup], opinion: dict[str, Any]) -> Iterator[str]:
    ours = {g.window for g in attention if g.window}
    theirs = opinion.get("sliding_window")
    types = opinion.get("layer_types")
    uses = types is None or any("sliding" in kind or "local" in kind for kind in types)
    if isinstance(theirs, int) and theirs > 0 and uses and theirs not in ours:
        yield f"window: ours {sorted(ours)}, transformers {theirs}"
    if ours and not theirs:
        yield f"window: ours {sorted(ours)}, transformers none"


FULL_TYPES = re.compile(r"full|global|^attention|hybrid")


def compare_layer_types(groups: list[LayerGroup], types: Any) -> Iterator[str]:
    """Compares which layers attend to everything: other names differ too much between families."""
    if not isinstance(types, list) or not any("attention" in str(kind) for kind in types):
        return
    theirs = {i for i, kind in enumerate(types) if FULL_TYPES.search(str(kind))}
    whole = ("full", "encoder_self", "mla", "mla_sparse")
    ours = {i for g in groups if g.kind in whole and not g.window for i in g.layers}
    if theirs != ours:
        yield f"full layers: ours {spans(ours)}, transformers {spans(theirs)}"


def spans(layers: set[int]) -> str:
    """Layer ids as text, shortened past eight."""
    ids = sorted(layers)
    return str(ids) if len(ids) <= 8 else f"{str(ids[:8])[:-1]}, ... {ids[-1]}] ({len(ids)})"
