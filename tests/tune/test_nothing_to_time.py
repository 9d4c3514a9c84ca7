"""Why nothing can be timed: what a tune says where no backend runs."""

from __future__ import annotations

import pytest

from attnctl.exits import Exit
from attnctl.layer import Options
from attnctl.model import read_model
from attnctl.registry import load
from attnctl.tune.tasks import NothingToTimeError, plan_tasks
from attnctl.tune.workload import Load
from tests import machine_factory as box
from tests.commands.running import LLAMA

ONE = (Load(phase="decode", batch=1, context=64),)


def said(*packages: str, backends: tuple[str, ...] = ()) -> str:
    with pytest.raises(NothingToTimeError) as error:
        plan_tasks(
            read_model(LLAMA),
            box.cpu("avx2", "fma", packages=packages),
            load(),
            Options(),
            ONE,
            backends=backends,
        )
    assert error.value.exit_code == Exit.NO
    return str(error.value)


def test_without_torch_that_is_the_reason() -> None:
    """And how to get it: no look at the rules of each backend is needed for that."""
    assert said() == (
        "tune: there is nothing to time: torch is not installed, and no kernel runs without it: "
        "pip install 'attnctl[kernels]', or attnctl in the environment of your engine"
    )


def test_with_torch_the_layers_are_named() -> None:
    """Their rules are what stands in the way, and select shows them."""
    assert said("torch", backends=("FLASH_ATTN",)) == (
        "tune: there is nothing to time: paged layers: none of --backend is eligible, "
        "attnctl select says why"
    )
