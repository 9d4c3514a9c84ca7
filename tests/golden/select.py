"""What the registry picks for the models under tests/models on every bundled machine, as text.

`python -m tests.golden.select` prints it; select.txt beside this file is its last agreed answer.
A line: the pick with the reason that it stands first, or why there is none, then the candidates
that its order puts before it with the rules they fail, then the machines that agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnctl import machines
from attnctl.decision import Candidate, Decision
from attnctl.layer import Layer, Options, layer_of
from attnctl.machine import Machine
from attnctl.machines.assumed import assume
from attnctl.model import read_model
from attnctl.model.spec import LayerGroup
from attnctl.registry import Registry, load
from attnctl.select import select
from attnctl.selection.memo import Memo
from tests.golden.agreeing import grouped

GOLDEN = Path(__file__).with_name("select.txt")
MODELS = Path(__file__).parent.parent / "models"

# a candidate that fails one of these computes something else or runs elsewhere
ELSEWHERE = frozenset({"platform", "operation"})


def text() -> str:
    registry, memo = load(), Memo()
    boxes = [assume(machines.load(name), "usual", registry).machine for name in machines.names()]
    paths = sorted(MODELS.glob("*.json"))
    return "\n".join(line for path in paths for line in _lines(path, boxes, registry, memo)) + "\n"


def _lines(path: Path, boxes: list[Machine], registry: Registry, memo: Memo) -> Iterator[str]:
    spec = read_model(path)
    yield path.stem
    for group in spec.groups:
        yield f"  {_title(group)}"
        layer = layer_of(spec, group, Options())
        yield from grouped({box.name: _answer(layer, box, registry, memo) for box in boxes})


def _title(group: LayerGroup) -> str:
    parts = [f"{group.kind} x {len(group.layers)}"]
    if group.head_size is not None:
        parts.append(f"{group.num_heads}/{group.num_kv_heads} heads of {group.head_size}")
    if group.window is not None:
        parts.append(f"window {group.window}")
    return ", ".join(parts)


def _answer(layer: Layer, box: Machine, registry: Registry, memo: Memo) -> str:
    decision = select(layer, box, registry, memo=memo)
    if not decision.needs_backend:
        return "nothing to compute"
    pick = decision.pick
    why = f"{pick.name}, {pick.why} [{pick.evidence}]" if pick else "none"
    failed = "; ".join(f"{c.name} {_codes(c)}" for c in _earlier(decision))
    return f"{why} (not {failed})" if failed else why


def _earlier(decision: Decision) -> Iterator[Candidate]:
    """Candidates of this operation and platform that stand before the pick and were rejected."""
    place = next((c.place for c in decision.candidates if c.ok), None)
    for candidate in sorted(decision.candidates, key=lambda c: c.place or 0):
        here = not ELSEWHERE & {reason.code for reason in candidate.reasons}
        ranked = candidate.place is not None and (place is None or candidate.place < place)
        if here and ranked and not candidate.ok:
            yield candidate


def _codes(candidate: Candidate) -> str:
    return ", ".join(reason.code for reason in candidate.reasons)


if __name__ == "__main__":
    print(text(), end="")
