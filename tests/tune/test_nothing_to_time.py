"""Why nothing can be timed: what a tune says where no backend runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from attnctl.exits import Exit
from attnctl.layer import Options
from attnctl.model import read_model
from attnctl.registry import load
from attnctl.tune.session import tune
from attnctl.tune.tasks import NothingToTimeError, plan_tasks
from attnctl.tune.workload import Load
from tests import machine_factory as box
from tests.commands.running import LLAMA
from tests.profile.factory import machine
from tests.tune.fake import FakeBench, Silent, request

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


@pytest.mark.parametrize("field", ["vendor", "arch"])
def test_a_device_that_has_no_name_is_not_tuned_for_nothing(field: str, tmp_path: Path) -> None:
    """A profile of it would fit no device, that one included."""
    here = machine("zen3")
    gone = (
        {"vendor": None} if field == "vendor" else dict.fromkeys(("microarchitecture", "isa_level"))
    )
    named = msgspec.structs.replace(here.cpu, **gone)
    unnamed = msgspec.structs.replace(named, arch="") if field == "arch" else named
    asked = request(tmp_path / "p.json", machine=msgspec.structs.replace(here, cpu=unnamed))
    bench = FakeBench(knobbed="CPU_ATTN")
    with pytest.raises(NothingToTimeError, match=f"the {field} of this device cannot be told"):
        tune(asked, Silent(), bench)
    assert (bench.timed, list(tmp_path.iterdir())) == ([], [])
