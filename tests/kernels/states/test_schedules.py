"""Whatever an engine's schedule, a sequence's outputs are those of one pass over its tokens."""

from __future__ import annotations

from importlib import import_module
from random import Random
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from attnctl.ops.case import Case
from attnctl.ops.compare import relative_rms
from attnctl.ops.state_cases import Value, case
from attnctl.runtime import StateMetadata
from tests.kernels.cpu.states import native
from tests.kernels.states.schedules import Forward, Schedule

OPS = ("gdn", "mamba1", "mamba2", "linear", "short_conv")
LENGTHS = (1, 2, 5, 20, 63, 64, 65, 127, 150)
LIMITS = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 0.012}
"""Of the error's root mean square over that of the reference, in one sequence."""


def widths(op: str, random: Random) -> dict[str, Value]:
    """Heads, widths and options that no kernel was made for."""
    one = random.choice

    def yes() -> bool:
        return random.random() < 0.5

    heads, groups = one((1, 2, 3)), one((1, 2, 3))
    if op == "gdn":
        kda = yes()
        found: dict[str, Value] = {"k_heads": heads, "v_heads": heads * (1 if kda else groups)}
        found |= {"head_k_dim": one((8, 24, 96)), "head_v_dim": one((8, 40, 80))}
        return found | {"kda": kda, "gate": yes(), "l2norm": yes()}
    if op == "mamba1":
        found = {"channels": one((1, 40, 130)), "state_size": one((4, 12, 17))}
        return found | {"z": yes(), "d": yes(), "softplus": yes()}
    if op == "mamba2":
        found = {"heads": groups * heads, "groups": groups, "head_dim": one((8, 24, 80))}
        found |= {"state_size": one((16, 20, 96)), "z": yes(), "softplus": yes(), "limits": yes()}
        return found | {"d": one(("off", "head", "channel"))}
    if op == "linear":
        return {"heads": heads, "head_dim": one((8, 24, 96)), "head_v_dim": one((0, 8, 40, 80))}
    found = {"channels": one((1, 5, 40, 130)), "width": one((2, 3, 4))}
    return found | {"bias": yes(), "silu": yes()}


def drawn(op: str, seed: int, longest: int = 5) -> tuple[Case, list[int]]:
    """A case and the lengths of its sequences."""
    random = Random(f"{op} {seed}")
    dtype = random.choice(tuple(LIMITS))
    state_dtype = dtype if op == "short_conv" else random.choice(("float32", "float32", dtype))
    drafts = random.choice((0, 1, 2, 3))
    common: dict[str, Value] = {"dtype": dtype, "state_dtype": state_dtype, "drafts": drafts}
    chosen = widths(op, random)
    if op == "short_conv" and random.random() < 0.3:
        common["columns"] = int(chosen["width"] or 0) + drafts + 1
    lengths = [random.choice(LENGTHS) for _ in range(random.randint(1, longest))]
    return case(op, **chosen, **common), lengths


def compiled(op: str) -> Forward:
    def forward(inputs: Any, pool: Tensor, metadata: StateMetadata, out: Tensor) -> None:
        assert native().forward(op, inputs, pool, metadata, out), "left to torch"

    return forward


def module_of(form: str, op: str) -> Forward:
    found: Forward = import_module(f"attnctl.kernels.{form}.{op}").forward
    return found


def check(forward: Forward, one: Case, lengths: list[int], seed: int) -> None:
    schedule = Schedule(one, lengths, seed)
    schedule.run(forward)
    wanted, begin = schedule.wanted(), 0
    limit = LIMITS[str(one["dtype"])] * (1 if one["state_dtype"] == "float32" else 6)
    for length in lengths:
        tokens = slice(begin, begin + length)
        error = relative_rms(schedule.out[tokens].double(), wanted[tokens])
        assert error <= limit, f"{one}, lengths {lengths}, seed {seed}: {error:.2g}"
        begin += length


@pytest.mark.parametrize("op", OPS)
def test_compiled_kernels_follow_any_schedule(op: str) -> None:
    """Chunks, steps, verification and rollback, slots used again, padding, odd widths."""
    torch.set_num_threads(1)
    for seed in range(24):
        one, lengths = drawn(op, seed)
        check(compiled(op), one, lengths, seed)


@pytest.mark.parametrize("op", OPS)
def test_the_torch_form_follows_any_schedule(op: str) -> None:
    """What stands in where there is no compiler."""
    for seed in range(100, 106):
        one, lengths = drawn(op, seed)
        check(module_of("eager", op), one, lengths, seed)


@pytest.mark.parametrize("op", OPS)
def test_interpreted_kernels_follow_any_schedule(op: str) -> None:
    """The Triton kernels, on two sequences."""
    one, _ = drawn(op, 200)
    drafted = msgspec.structs.replace(one, params={**one.params, "drafts": 2, "columns": 0})
    check(module_of("triton.states", op), drafted, [37, 4], 200)


@pytest.mark.parametrize("op", OPS)
def test_a_forgotten_rollback_or_former_owner_does_not_pass(op: str) -> None:
    """The drafts' state kept as if all had stayed; a first chunk that reads its slot."""
    forward = compiled(op)

    def forgetful(inputs: Any, pool: Tensor, metadata: StateMetadata, out: Tensor) -> None:
        ones = torch.ones_like(metadata.query_start_loc[1:])
        forward(inputs, pool, msgspec.structs.replace(metadata, num_accepted=ones), out)

    def curious(inputs: Any, pool: Tensor, metadata: StateMetadata, out: Tensor) -> None:
        known = torch.ones_like(metadata.has_initial_state)
        forward(inputs, pool, msgspec.structs.replace(metadata, has_initial_state=known), out)

    params: dict[str, Value] = {"drafts": 3, "dtype": "float32"}
    if op == "short_conv":
        params["state_dtype"] = "float32"
    for wrong in (forgetful, curious):
        with pytest.raises(AssertionError):
            check(wrong, case(op, **params), [40] * 4, 3)
