"""What vLLM would pick for public shapes on every bundled machine, as text.

`python -m tests.engines.golden` prints it; the file beside this one is its last agreed answer.
Each line: what is picked, (why each earlier candidate was not), and the machines that agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from attnctl import machines
from attnctl.engines import vllm
from attnctl.layer import Options
from attnctl.machine import Machine, Package
from attnctl.model.spec import LayerGroup, ModelSpec
from tests.engines.shapes import MODELS
from tests.golden.agreeing import grouped

GOLDEN = Path(__file__).with_name("vllm_0_33.golden.txt")


def with_usual_packages(name: str) -> Machine:
    machine = machines.load(name)
    usual = {
        package: Package(status="assumed", source="usual image", version=version)
        for package, version in machine.usual_packages.items()
    }
    return msgspec.structs.replace(machine, packages=usual)


def text() -> str:
    boxes = [with_usual_packages(name) for name in machines.names()]
    return "\n".join(line for model in MODELS for line in _lines(model, boxes)) + "\n"


def _lines(model: ModelSpec, boxes: list[Machine]) -> Iterator[str]:
    yield f"{model.model_type}"
    for group in model.groups:
        if not group.is_ssm:
            yield f"  {group.kind}, head size {group.head_size}"
            yield from grouped({box.name: _answer(box, group, model) for box in boxes})
    if any(group.is_ssm for group in model.groups):
        yield "  block size beside states"
        yield from grouped({box.name: _sizes(box, model) for box in boxes})


def _answer(box: Machine, group: LayerGroup, model: ModelSpec) -> str:
    found = vllm.explain(box, group, Options(), model)
    if found.pick is None:
        return str(found.error)
    earlier = found.priority[: found.priority.index(found.pick)] if found.priority else ()
    why = "; ".join(f"{n} {', '.join(f.code for f in found.rejected[n])}" for n in earlier)
    prefill = f" + {found.mla_prefill}" if found.mla_prefill else ""
    size = "" if found.block_size is None else f" in blocks of {found.block_size}"
    return f"{found.pick}{prefill}{size}" + (f" (not {why})" if why else "")


def _sizes(box: Machine, model: ModelSpec) -> str:
    plan = vllm.hybrid_plan(box, model, Options())
    return plan.error or f"{plan.block_size}, page {plan.page_bytes}, state {plan.state_bytes}"


if __name__ == "__main__":
    print(text(), end="")
