"""What the compiled state kernels refuse, what they leave to torch, and how they are built."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from attnctl.exits import InputError
from attnctl.findings import Verdict
from attnctl.kernels.cpu.build import build
from attnctl.kernels.cpu.state_call import SOURCE, NativeStates, open_states
from attnctl.kernels.states.runtime import StateAttention
from attnctl.ops import state_cases
from attnctl.ops.state_trial import try_case
from attnctl.probe.realhost import RealHost
from attnctl.runtime import open_backend
from tests.kernels.cpu.states import WHOLE, compiled, make, native, run
from tests.kernels.cpu.test_build import HostWithEnvironment
from tests.ops.state_batches import NAN, packed

BACKENDS = {
    "gdn": "GDN_ATTN",
    "mamba1": "MAMBA1_ATTN",
    "mamba2": "MAMBA2_ATTN",
    "linear": "LINEAR_ATTN",
    "short_conv": "SHORT_CONV_ATTN",
}


class Kernels:
    """A runtime whose forward is these kernels and nothing else."""

    def __init__(self, op: str, kernels: NativeStates) -> None:
        self._op, self._kernels = op, kernels
        self.build_metadata = open_backend(BACKENDS[op]).build_metadata

    def forward(self, inputs: Any, state: Any, metadata: Any, out: Any) -> None:
        assert self._kernels.forward(self._op, inputs, state, metadata, out)


@pytest.mark.parametrize("op", WHOLE)
def test_the_kernels_themselves_pass_smokes_cases(op: str) -> None:
    """Every third case; none of them falls back to torch."""
    runtime: Any = Kernels(op, native())
    for case in state_cases.cases(op)[::3]:
        result = try_case(runtime, case)
        assert result.verdict == "pass", (case.text, result)


def test_the_kernels_build_without_any_instruction_flag(tmp_path: Path) -> None:
    """A machine whose processor is unknown gets plain code that gives right results."""
    environ = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path)}
    made = build(SOURCE, (), environ)
    assert made.path is not None, made
    kernels = NativeStates(made.path)
    for op in WHOLE:
        runtime: Any = Kernels(op, kernels)
        for case in state_cases.cases(op)[::9]:
            result = try_case(runtime, case)
            assert result.verdict == "pass", (case.text, result)


@pytest.mark.parametrize("op", WHOLE)
@pytest.mark.parametrize(
    ("lengths", "slot", "accepted", "said"),
    [
        ([5], 3, 1, "state_indices of row 0 name a slot beyond the pool, which has 3"),
        ([9], 0, 1, "at most the 5 tokens; it does not in row 0"),
        ([7, -2], 0, 1, "at most the 5 tokens; it does not in row 0"),
        ([5], 0, 2, "num_accepted of row 0 must lie between 1 and 1"),
        ([5], 0, 0, "num_accepted of row 0 must lie between 1 and 1"),
    ],
)
def test_a_batch_that_would_read_elsewhere_is_refused(
    op: str, lengths: list[int], slot: int, accepted: int, said: str
) -> None:
    """Slots, tokens and columns beyond what there is; nothing has been written then."""
    inputs, state = make(op, 5, 1)
    pool = torch.full((3, *state), NAN)
    count = torch.tensor([accepted] * len(lengths), dtype=torch.int32)
    known = [True] * len(lengths)
    meta = packed(lengths, [[slot]] * len(lengths), known, num_accepted=count)
    with pytest.raises(InputError, match=said):
        run(compiled, op, inputs, pool, meta)
    assert pool.isnan().all()


@pytest.mark.parametrize(
    ("op", "name"), [("gdn", "k"), ("mamba1", "dt"), ("mamba2", "b"), ("linear", "v")]
)
def test_an_input_of_another_length_is_refused(op: str, name: str) -> None:
    """One tensor has fewer tokens than the others: the kernels never see it."""
    inputs, state = make(op, 5, 1)
    inputs = msgspec.structs.replace(inputs, **{name: getattr(inputs, name)[:4]})
    runtime = open_backend(BACKENDS[op])
    with pytest.raises(InputError, match=rf"{name} must be \[5, .*it is \[4, "):
        runtime.forward(inputs, torch.zeros(1, *state), packed([5], [[0]], [False]))


@pytest.mark.parametrize("op", WHOLE)
def test_what_the_kernels_do_not_take_is_left_to_torch(op: str) -> None:
    """Float64 pools, and slots that are not dense: refused without a trace."""
    inputs, state = make(op, 5, 1)
    meta = packed([5], [[0]], [False])
    shape = inputs.v.shape if hasattr(inputs, "v") else inputs.x.shape
    double = torch.full((1, *state), NAN, dtype=torch.float64)
    assert not compiled(op, inputs, double, meta, torch.zeros(shape))
    assert double.isnan().all()
    if op != "short_conv":
        wide = torch.full((1, *state[:-1], 2 * state[-1]), NAN)
        assert not compiled(op, inputs, wide[..., ::2], meta, torch.zeros(shape))
        assert wide.isnan().all()


def test_integers_of_other_types_are_taken() -> None:
    """64-bit starts and slots, in a batch that is used for two layers."""
    inputs, state = make("gdn", 5, 1)
    meta = packed([3, 2], [[2], [0]], [False, False])
    wide = msgspec.structs.replace(
        meta, query_start_loc=meta.query_start_loc.long(), state_indices=meta.state_indices.long()
    )
    results = []
    for batch in (meta, wide, wide):
        pool = torch.zeros(3, *state)
        results.append((run(compiled, "gdn", inputs, pool, batch), pool))
    for out, pool in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(pool, results[0][1])


def test_a_shared_batch_follows_its_tensors() -> None:
    """A batch whose slots are written anew in place is read anew."""
    inputs, state = make("gdn", 1, 1)
    meta = packed([1], [[0]], [False])
    pool = torch.zeros(2, *state)
    run(compiled, "gdn", inputs, pool, meta)
    meta.state_indices[0, 0] = 1
    run(compiled, "gdn", inputs, pool, meta)
    assert torch.equal(pool[0], pool[1])
    assert pool.any()


@pytest.mark.parametrize("op", WHOLE)
def test_a_further_layer_of_a_batch_is_computed_alike(op: str) -> None:
    """By the shorter way, which there is only for the batch seen last; with and without `out`."""
    inputs, state = make(op, 5, 1)
    meta, kernels = packed([3, 2], [[2], [0]], [False, False]), open_states(RealHost())[0]
    assert kernels is not None
    pools = [torch.zeros(3, *state) for _ in range(3)]
    assert kernels.again(op, inputs, pools[0], meta, None) is None
    assert not pools[0].any()
    out = torch.zeros(inputs.v.shape if hasattr(inputs, "v") else inputs.x.shape)
    assert kernels.forward(op, inputs, pools[0], meta, out)
    for pool, given in zip(pools[1:], (None, torch.full_like(out, NAN)), strict=True):
        found = kernels.again(op, inputs, pool, meta, given)
        assert torch.equal(found, out)
        assert torch.equal(pool, pools[0])
    assert kernels.again(op, inputs, pools[1], msgspec.structs.replace(meta), out) is None
    assert kernels.again(op, inputs, pools[1][:2], meta, out) is None


def test_a_backend_without_a_compiler_says_so_once_and_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning with the reason, then plain torch."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    host = HostWithEnvironment({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})
    runtime = StateAttention("GDN_ATTN", "gdn", ("gdn",), host=host)
    inputs, state = make("gdn", 5, 1)
    meta = packed([5], [[0]], [False])
    pool, other = torch.zeros(1, *state), torch.zeros(1, *state)
    with pytest.warns(UserWarning, match="plain torch, slowly: there is no compiler"):
        out = runtime.forward(inputs, pool, meta)
    assert runtime.finding().verdict is Verdict.UNMET
    torch.testing.assert_close(runtime.forward(inputs, pool * 0, meta), out)
    torch.testing.assert_close(out, run(compiled, "gdn", inputs, other, meta), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(pool, other, rtol=1e-4, atol=1e-5)


def test_on_a_processor_the_compiled_kernels_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """forward gives their very bits, and finding names the compiler."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    for op in WHOLE:
        runtime = open_backend(BACKENDS[op])
        inputs, state = make(op, 40, 2)
        meta = packed([40], [[1]], [False])
        pool, other = torch.zeros(2, *state), torch.zeros(2, *state)
        found = runtime.forward(inputs, pool, meta)
        assert torch.equal(found, run(compiled, op, inputs, other, meta))
        assert torch.equal(pool, other)
        assert runtime.finding().verdict is Verdict.MET
