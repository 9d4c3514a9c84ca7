"""What a planned layer is handed by mistake: one sentence before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

import attnctl
from attnctl import machines
from attnctl.exits import InputError
from attnctl.machines.assumed import assume
from attnctl.runtime import open_backend

CONFIG = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 4}
CONFIG |= {"num_hidden_layers": 1, "torch_dtype": "float32"}


def layer(name: str) -> Any:
    """The one layer of a plan that has this backend alone, on its kind of machine."""
    registry = attnctl.load_registry()
    (backend,) = (one for one in registry.backends if one.name == name)
    alone = msgspec.structs.replace(registry, backends=(backend,))
    box = machines.load("zen4" if name == "CPU_ATTN" else "h200")
    machine = assume(box, "all", alone).machine
    return attnctl.plan(model=CONFIG, machine=machine, registry=alone, profile="none")[0]


def batch(**changes: Any) -> dict[str, Any]:
    """One sequence of 5 new tokens in page 0."""
    given = {
        "query_start_loc": torch.tensor([0, 5], dtype=torch.int32),
        "seq_lens": torch.tensor([5], dtype=torch.int32),
        "block_table": torch.zeros(1, 1, dtype=torch.int32),
        "slot_mapping": torch.arange(5),
        "max_query_len": 5,
        "max_seq_len": 5,
    }
    return given | changes


@pytest.mark.parametrize("name", ["CPU_ATTN", "TRITON_ATTN"])
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda one: one.new_cache(0), "num_blocks 0: give a whole number from 1 on"),
        (lambda one: one.new_cache(-3), "num_blocks -3: give a whole number from 1 on"),
        (lambda one: one.new_cache("4"), "num_blocks '4': give a whole number"),
        (lambda one: one.new_cache(4.0), "num_blocks 4.0: give a whole number"),
        (lambda one: one.new_cache(True), "num_blocks True: give a whole number"),
        (lambda one: one.new_cache(4, device="nope"), "device 'nope': give one of torch's, as cpu"),
        (lambda one: one.new_cache(4, dtype="float32"), "dtype 'float32': give one of torch's"),
        (
            lambda one: one.build_metadata(**batch(max_query_len=None)),
            "max_query_len None: give a whole number from 0 on",
        ),
        (
            lambda one: one.build_metadata(**batch(max_seq_len="5")),
            "max_seq_len '5': give a whole number from 0 on",
        ),
        (
            lambda one: one.build_metadata(**batch(query_start_loc=[0, 5])),
            r"query_start_loc \[0, 5\]: give a tensor \[B \+ 1\] of integers",
        ),
        (
            lambda one: one.build_metadata(**batch(query_start_loc=torch.tensor(5))),
            r"query_start_loc tensor\(5\): give a tensor \[B \+ 1\]",
        ),
    ],
)
def test_a_wrong_argument_of_a_planned_layer_is_one_sentence(
    name: str, call: Callable[[Any], Any], said: str
) -> None:
    """It names the argument and what was given, whichever backend the plan picked."""
    with pytest.raises(InputError, match=f"^{said}") as caught:
        call(layer(name))
    assert "\n" not in str(caught.value)


def test_counts_of_another_integer_type_are_taken() -> None:
    """A bound that a program read out of NumPy or a tensor's size is a number all the same."""

    class Count(int):
        """A whole number of a type of its own."""

    one = layer("CPU_ATTN")
    assert one.new_cache(Count(2)).shape[0] == 2
    planned = one.build_metadata(**batch(max_query_len=Count(5), max_seq_len=Count(7)))
    assert planned.pick.backend == "CPU_ATTN"


def test_slots_of_states_are_counted_too() -> None:
    """A pool of none, or of a negative number, is refused before torch is asked for it."""
    assert open_backend("GDN_ATTN").is_ssm()
    config = "tests/models/qwen3-next-80b-a3b.json"
    machine = assume(machines.load("h200"), "all", attnctl.load_registry()).machine
    found = attnctl.plan(model=config, machine=machine, profile="none")
    one = next(found[index] for index in found if found[index].is_ssm)
    for slots in (0, -1, None, 2.5):
        with pytest.raises(InputError, match=rf"^slots {slots}: give a whole number from 1 on"):
            one.new_states(slots)
    with pytest.raises(InputError, match=r"^num_spec -1: give a whole number from 0 on"):
        one.new_states(2, num_spec=-1)
