"""Calls of a compiled kernel: Triton's own launcher, with descriptors that are encoded once."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.nvidia.driver import make_tensordesc_arg, wrap_handle_tensordesc

from attnctl.kernels.triton.binary_call import MAPS, Call, Calls, Encoder, Whole
from attnctl.kernels.triton.paged.prefill_call import _packed_box

META = {"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [64, 64], "fp4_padded": False}


class Driver:
    """Encodes a descriptor as what it was asked for, and counts how often."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.utils = SimpleNamespace(
            fill_tma_descriptor=self.fill, fill_tma_descriptor_tiled=self.fill
        )

    def fill(self, address: int, *rest: Any) -> Any:
        self.asked.append(address)
        return ("map", address, *map(repr, rest))


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Triton's active driver for the length of a test."""
    made, before = Driver(), triton.runtime.driver._active
    triton.runtime.driver.set_active(made)
    yield made
    triton.runtime.driver._active = before


class Launcher:
    """As much of Triton's as there is between a kernel's run and its C code."""

    def __init__(self, boxes: int, metas: Any) -> None:
        self.sent: list[Any] = []
        kinds = ["tensordesc<bf16[64, 64]>"] * boxes + ["*bf16", "i32"]
        self.launch = wrap_handle_tensordesc(self.c_code, dict(enumerate(kinds)), metas)

    def c_code(self, *arguments: Any) -> None:
        self.sent.append(arguments)

    def __call__(self, *arguments: Any) -> None:
        self.launch(*arguments)


def binary_of(run: Any) -> Any:
    return SimpleNamespace(
        run=run,
        function=3,
        packed_metadata=(4, 1, 0),
        launch_metadata=lambda grid, stream: ("facts", grid, stream),
    )


def box_over(tensor: Tensor) -> Any:
    return _packed_box(tensor, 64, 64)


def drawn() -> Tensor:
    return torch.zeros(128, 1, 64, dtype=torch.bfloat16)


def test_an_encoded_descriptor_is_what_tritons_launcher_would_have_made(driver: Driver) -> None:
    """The map, then shape and strides; at a known address nothing is encoded again."""
    launcher, first, second = Launcher(2, [META, META]), drawn(), drawn()
    calls, binary = Calls(), binary_of(launcher)
    call = calls.of(binary, [box_over(first), box_over(first)])
    assert all(isinstance(one, Encoder) for one in call.makers)
    # descriptors of one kind share their maps, from launch to launch
    assert call.makers[0] is call.makers[1] is calls.of(binary, [box_over(second)] * 2).makers[0]
    for tensor in (first, second, first, second):
        map_, *_ = [one.at(tensor) for one in call.makers]
        behind = call.makers[0].behind
        call((5, 1, 1), 7, [map_, *behind, map_, *behind, tensor, 9])
    assert driver.asked == [first.data_ptr(), second.data_ptr()]
    assert call.makers[0].box.base is None
    for tensor, sent in zip((first, second), launcher.sent, strict=False):
        one = make_tensordesc_arg(box_over(tensor), META)
        assert list(sent[9:]) == [*one, *one, tensor, 9]
        assert sent[:9] == (5, 1, 1, 7, 3, (4, 1, 0), None, None, None)


def test_addresses_that_are_kept_have_a_bound(driver: Driver) -> None:
    """One more than there is room for, and the first is encoded anew."""
    call = Calls().of(binary_of(Launcher(1, [META])), [box_over(drawn())])
    (maker,) = call.makers
    maker.known.clear()
    tensors = [drawn() for _ in range(MAPS + 1)]
    for tensor in tensors:
        assert maker.at(tensor)[1] == tensor.data_ptr()
        assert len(maker.known) <= MAPS
    assert maker.at(tensors[0])[1] == tensors[0].data_ptr()
    assert driver.asked[-1] == tensors[0].data_ptr()


@pytest.mark.parametrize(
    "run",
    [
        print,
        SimpleNamespace(launch=print),
        SimpleNamespace(launch=lambda *arguments: None),
    ],
    ids=["no launcher", "C alone", "another wrapper"],
)
def test_a_launcher_that_is_not_known_is_left_to_itself(run: Any) -> None:
    """The descriptors are handed on whole, over each call's own tensor."""
    first, second = drawn(), drawn()
    call = Calls().of(binary_of(run), [box_over(first)])
    assert call.launcher is run
    (maker,) = call.makers
    assert isinstance(maker, Whole)
    assert maker.box.base is None
    assert maker.at(second).base is second
    assert vars(maker.at(first)) == vars(box_over(first))
    assert maker.behind == ()


def test_descriptors_that_triton_takes_apart_itself_are_left_to_it(driver: Driver) -> None:
    """Where a target has no unit for them there is no meta, and nothing to encode."""
    for metas in (None, []):
        call = Calls().of(binary_of(Launcher(1, metas)), [box_over(drawn())])
        assert isinstance(call.makers[0], Whole)
    assert driver.asked == []


def test_hooks_are_called_where_somebody_has_set_them() -> None:
    """A profiler's, with what it may ask of the kernel; none costs nothing."""
    sent: list[Any] = []
    call = Call(binary_of(lambda *arguments: sent.append(arguments)), None, ())
    call = call._replace(launcher=call.binary.run)
    hook = triton.knobs.runtime.launch_enter_hook
    call((1, 2, 3), 7, [9])
    hook.add(print)
    try:
        call((1, 2, 3), 7, [9])
    finally:
        hook.remove(print)
    call((1, 2, 3), 7, [9])
    plain = (1, 2, 3, 7, 3, (4, 1, 0), None, None, None, 9)
    facts = ("facts", (1, 2, 3), 7)
    after = triton.knobs.runtime.launch_exit_hook
    assert sent == [plain, (1, 2, 3, 7, 3, (4, 1, 0), facts, hook, after, 9), plain]


@pytest.mark.usefixtures("driver")
def test_other_shapes_and_other_binaries_have_descriptors_of_their_own() -> None:
    """At the same address: what is encoded is the shape too, and how a kernel wants its boxes."""
    calls, one, other = Calls(), binary_of(Launcher(1, [META])), binary_of(Launcher(1, [{**META}]))
    whole = drawn()
    found = [
        calls.of(binary, [box_over(tensor)]).makers[0]
        for binary in (one, other)
        for tensor in (whole, whole[:64])
    ]
    assert len({id(maker) for maker in found}) == 4
    assert len({id(maker.at(whole)) for maker in found}) == 4
    assert calls.of(one, [box_over(whole[:64])]).makers[0] is found[1]
