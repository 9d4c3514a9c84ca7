"""What a program hands over by mistake: one sentence of an error that the library declares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import attnctl
from attnctl import machines
from attnctl.exits import AttnctlError, InputError, NoLayerError
from attnctl.layer import BOUNDS, MAY_BE_LEFT, Options
from attnctl.machines.assumed import assume
from tests.commands.running import LLAMA

H200 = machines.load("h200")
REGISTRY = attnctl.load_registry()
SPEC = attnctl.read_model(LLAMA)


def planned(**wrong: Any) -> Any:
    return attnctl.plan(**{"model": LLAMA, "machine": H200, "profile": "none", **wrong})


def selected(*given: Any, **named: Any) -> Any:
    return attnctl.select_model(*given, *(SPEC, H200, REGISTRY)[len(given) :], **named)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: planned(model=None), "model None: give the path of a config.json, or a dict"),
        (lambda: planned(model=b"x"), "model b'x': give the path of a config.json"),
        (lambda: planned(device="cuda"), "device 'cuda': give its index, a whole number"),
        (lambda: planned(device=None), "device None: give its index"),
        (lambda: planned(device=True), "device True: give its index"),
        (lambda: planned(options={"tp": 1}), "options {'tp': 1}: give attnctl.Options(...)"),
        (lambda: planned(options=0), "options 0: give attnctl.Options(...)"),
        (lambda: planned(profile=3), "profile 3: give a file, a Profile or"),
        (lambda: planned(registry=3), "registry 3: give what attnctl.load_registry() returns"),
        (lambda: planned(machine=3), "machine 3: give a Machine, as attnctl.probe() returns"),
        (lambda: selected(LLAMA), "give what attnctl.read_model returns"),
        (lambda: selected(SPEC, "h200"), "give a Machine, as attnctl.machines.load('h200')"),
        (lambda: selected(SPEC, H200, None), "registry None: give what attnctl.load_registry()"),
        (lambda: selected(options=None), "options None: give attnctl.Options(...)"),
        (lambda: selected(device="cuda:0"), "device 'cuda:0': give its index"),
        (lambda: selected(SPEC, machines), ": give a Machine, as attnctl.probe() returns"),
        (lambda: attnctl.select(SPEC, H200, REGISTRY), "give what attnctl.layer.layer_of returns"),
        (lambda: attnctl.open_backend("CPU_ATTN", 3), "registry 3: give what"),
        (lambda: attnctl.open_backend(None), "None: no such backend; there are CPU_ATTN"),
        (lambda: attnctl.load_profile(3), 'path 3: give a file, or "none"'),
        (lambda: attnctl.load_profile(machine="h200"), "machine 'h200': give a Machine"),
        (lambda: attnctl.load_profile(machine=H200, device="cuda"), "device 'cuda': give its"),
        (lambda: attnctl.read_model(3), "model 3: give the path of a config.json, or a dict"),
        (lambda: machines.load(None), "machine None: give the name of a bundled one, or a file"),
        (lambda: Options(tp="x"), "--tp 'x': must be a whole number"),
        (lambda: Options(tp=None), "--tp None: must be a whole number"),
        (lambda: Options(tp=2.0), "--tp 2.0: must be a whole number"),
        (lambda: Options(dtype=3), "--dtype 3: give a name, as bfloat16"),
        (lambda: Options(kv_cache_dtype="fp9"), "--kv-cache-dtype 'fp9': give one of auto, "),
        (lambda: Options(backend="CPU_ATTN"), "--backend 'CPU_ATTN': give pairs of a kind and a"),
        (lambda: Options(backend=("full", "X")), "give pairs of a kind and a name"),
    ],
)
def test_a_wrong_argument_is_one_sentence(call: Callable[[], Any], said: str) -> None:
    """It names the argument, shows what was given and says what to give."""
    with pytest.raises(AttnctlError) as caught:
        call()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_count_out_of_its_bounds_is_refused_when_the_options_are_made(name: str) -> None:
    """What lies at a bound is taken, what lies beyond is one sentence."""
    least, most = BOUNDS[name]
    option = f"--{name.replace('_', '-')}"
    for count in (least, most):
        assert getattr(Options(**{name: count}), name) == count
    for count, said in ((least - 1, f"must be {least} or more"), (most + 1, f"at most {most}")):
        with pytest.raises(InputError, match=f"^{option} {count}: .*{said}$"):
            Options(**{name: count})
    if name in MAY_BE_LEFT:
        assert getattr(Options(**{name: None}), name) is None


def plan_of_two() -> attnctl.plans.opening.Plan:
    """A plan of a model with two layers, by a registry of one backend."""
    config = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 4}
    config |= {"num_hidden_layers": 2, "torch_dtype": "float32"}
    (backend,) = (one for one in REGISTRY.backends if one.name == "CPU_ATTN")
    registry = msgspec.structs.replace(REGISTRY, backends=(backend,))
    machine = assume(machines.load("zen4"), "all", registry).machine
    return planned(model=config, machine=machine, registry=registry)


@pytest.mark.parametrize("index", [2, 99, -1, "x", None, [], 1.5])
def test_a_layer_that_a_plan_does_not_hold_is_one_sentence(index: Any) -> None:
    """The layers that it holds are named; membership and get() answer as of any mapping."""
    found = plan_of_two()
    with pytest.raises(NoLayerError) as caught:
        found[index]
    assert str(caught.value) == (
        f"layer {index!r}: the plan holds layers 0 to 1; ask with one of list(plan)"
    )
    assert index not in found
    assert found.get(index) is None
    assert (list(found), found[0].name) == ([0, 1], "CPU_ATTN")


def test_a_path_object_is_as_good_as_its_text(tmp_path: Path) -> None:
    """For machines as for models."""
    path = tmp_path / "m.json"
    path.write_bytes((machines.folder() / "h200.json").read_bytes())
    assert machines.load(path) == machines.load(str(path))
