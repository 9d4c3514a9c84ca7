"""A runtime of one state-space operation: Triton on a GPU, C++ on a processor.

What the C++ kernels do not take (float64, slots that are not dense), and a machine without a
compiler, is left to plain torch.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnctl.arguments import refuse_no_count, refuse_other
from attnctl.caches import states as cache
from attnctl.exits import InputError
from attnctl.kernels.batch_checks import INTEGERS
from attnctl.kernels.libraries import Load
from attnctl.kernels.plain_torch import plain_torch
from attnctl.kernels.rivals import importable, rival
from attnctl.kernels.states.batch_checks import check_fields, check_kind, check_values
from attnctl.kernels.states.checks import check_call, check_dense_out
from attnctl.kernels.states.knobs import STEPS, state_knobs
from attnctl.model.spec import State
from attnctl.ops.short_conv import ShortConv, check
from attnctl.runtime import StateMetadata
from attnctl.runtime_copies import MadeAnew
from attnctl.tune.settings import BLOCK_SIZE, refuse_kernel

if TYPE_CHECKING:
    from attnctl.findings import Finding
    from attnctl.kernels.cpu.state_call import NativeStates
    from attnctl.probe.host import Host
    from attnctl.tune.settings import Limits, Setting, Work

Shape = tuple[int, ...]


class StateAttention(MadeAnew):
    """StateRuntime of one operation.

    kinds: the state types whose layers it computes (attnctl.model.spec.State.type). rivals: names
    of attnctl.kernels.rivals' modules that compute it too; kernel: the one of them that does, ""
    for the bundled kernels. knobs: of the bundled kernels, checked; none where they keep their own.
    load: import_module, or what stands for it. host: where a compiler is looked for, at the first
    call on a processor.
    """

    def __init__(
        self,
        name: str,
        op: str,
        kinds: tuple[str, ...],
        rivals: tuple[str, ...] = (),
        *,
        kernel: str = "",
        knobs: Mapping[str, Any] | None = None,
        load: Load = import_module,
        host: Host | None = None,
    ) -> None:
        self._name = name
        self._op = op
        self._kinds = kinds
        self._rivals = rivals
        self._kernel = kernel
        self._tuned = {"knobs": knobs} if knobs else {}
        self._load = load
        self._host = host
        # a comparison with a number would make a tensor of it each time
        self._none = torch.zeros((), dtype=torch.int8, device="cpu")
        self._opened: tuple[NativeStates | None, Finding] | None = None
        self._seen: tuple[StateMetadata, tuple[torch.device, int, int], bool] | None = None

    def get_name(self) -> str:
        return self._name

    def is_ssm(self) -> bool:
        return True

    def rivals(self) -> tuple[str, ...]:
        """The rival kernels whose package is installed here."""
        return importable(self._rivals)

    def with_knobs(
        self, knobs: Mapping[str, Any], kernel: str = "", load: Load | None = None
    ) -> StateAttention:
        """This runtime on a rival kernel, or with knobs of the bundled ones.

        InputError: it has no such kernel, or that kernel no such knob.
        """
        refuse_kernel(self._name, kernel, (*self._rivals, STEPS))
        if kernel in self._rivals:
            for knob in set(knobs) - {BLOCK_SIZE}:
                raise InputError(f"{self._name}: {kernel} has no knob {knob!r}")
        other = kernel if kernel in self._rivals else ""
        return type(self)(
            *(self._name, self._op, self._kinds, self._rivals),
            kernel=other,
            knobs=None if other else state_knobs(self._name, self._op, knobs, kernel),
            load=load or self._load,
            host=self._host,
        )

    def settings(self, work: Work, limits: Limits) -> tuple[Setting, ...]:
        """Every launch of the Triton kernels and every rival that is installed, the default first.

        On a processor the default alone.
        """
        from attnctl.tune.measure.state_settings import state_settings

        return state_settings(self._op, work, limits, self.rivals())

    def state_shapes(
        self, state: State, tp: int = 1, num_spec: int = 0
    ) -> tuple[tuple[str, Shape], ...]:
        """Name and shape of each state tensor of one slot. InputError: another kind of layer, or
        no number of ranks or drafts."""
        refuse_other("state", state, State, "a layer's, as attnctl.read_model() finds it")
        refuse_no_count("tp", tp, 1)
        refuse_no_count("num_spec", num_spec)
        if state.type not in self._kinds:
            raise InputError(
                f"{self._name}: it keeps states of {' and '.join(self._kinds)}; this layer's is "
                f"{state.type}. Take the backend that attnctl select names for it"
            )
        return cache.state_shapes(state, tp, num_spec)

    def build_metadata(
        self,
        query_start_loc: Tensor,
        state_indices: Tensor,
        num_computed_tokens: Tensor,
        *,
        max_query_len: int,
        num_accepted: Tensor | None = None,
        speculative: Tensor | None = None,
        num_spec: int = 0,
    ) -> StateMetadata:
        """state_indices: [B] or [B, 1 + K]. Tensors are kept, not copied.

        InputError: they contradict each other, as far as that shows without waiting: on a
        processor what they hold is looked at too.
        """
        name = self._name
        check_kind(name, "state_indices", state_indices, INTEGERS)
        check_kind(name, "num_computed_tokens", num_computed_tokens, INTEGERS)
        metadata = StateMetadata(
            query_start_loc=query_start_loc,
            state_indices=state_indices[:, None] if state_indices.dim() == 1 else state_indices,
            has_initial_state=num_computed_tokens > self._none,
            max_query_len=max_query_len,
            num_accepted=num_accepted,
            speculative=speculative,
            num_spec=num_spec,
        )
        check_fields(name, self._op, metadata)
        if query_start_loc.is_cpu:
            check_values(name, self._op, metadata)
        return metadata

    def forward(
        self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor | None = None
    ) -> Tensor:
        """Outputs of every token; states in place, without a gradient.

        InputError: inputs, pool, batch and `out` do not fit together, or on a processor the batch
        leads beyond them; nothing is written then.
        """
        if self._opened is not None and self._opened[0] is not None:
            found = self._opened[0].again(self._op, inputs, state, metadata, out)
            if found is not None:
                return found
        out = self._checked(inputs, state, out)
        self._run(inputs, state, metadata, out)
        return out

    def _checked(self, inputs: Any, state: Tensor, out: Tensor | None) -> Tensor:
        """The tensor for the result. InputError: inputs, pool and `out` do not fit together."""
        result, dtype = check_call(self._name, self._op, inputs, state, out)
        if out is None:
            return torch.zeros(result, dtype=dtype, device=state.device)
        return out

    def _run(self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor) -> None:
        """InputError: the batch does not fit inputs and pool, which do each other."""
        seen = self._seen
        places = (state.device, out.shape[0], state.shape[0])
        # the layers of a model share a batch: it is looked at once
        if seen is None or seen[0] is not metadata or seen[1] != places:
            check_fields(self._name, self._op, metadata, state.device)
            if state.is_cpu:
                check_values(self._name, self._op, metadata, *places[1:])
            on_triton = not state.is_cpu or os.environ.get("TRITON_INTERPRET") == "1"
            self._seen = seen = (metadata, places, on_triton)
        if isinstance(inputs, ShortConv):
            check(inputs.weight.shape[1], state.shape[1], metadata.num_spec)
        if not self._kernel:
            self._compute(inputs, state, metadata, out, on_triton=seen[2])
        elif out.numel() and metadata.max_query_len:
            compute = rival(self._kernel, self._op)
            compute(inputs, state, metadata, out, self._load)

    def finding(self) -> Finding:
        """What computes on a processor: the C++ kernels' compiler, or why it is torch instead."""
        return self._open()[1]

    def _compute(
        self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor, *, on_triton: bool
    ) -> None:
        op = self._op
        if on_triton:
            check_dense_out(self._name, out)
            kernels = import_module(f"attnctl.kernels.triton.states.{op}")
            kernels.forward(inputs, state, metadata, out, **self._tuned)
            return
        native = (self._opened or self._open())[0]
        if native is not None and native.forward(op, inputs, state, metadata, out):
            return
        plain = import_module(f"attnctl.kernels.eager.{op}")
        # what a batch holds may have changed since it was looked at
        check_values(self._name, op, metadata, out.shape[0], state.shape[0])
        with plain_torch(state.device):
            plain.forward(inputs, state, metadata, out)

    def _open(self) -> tuple[NativeStates | None, Finding]:
        if self._opened is None:
            from attnctl.kernels.cpu.state_call import open_states
            from attnctl.probe.realhost import RealHost

            self._opened = native, found = open_states(self._host or RealHost())
            if native is None:
                warnings.warn(
                    f"{self._name} computes in plain torch, slowly: {found.found}. "
                    f"Try: {found.fix}",
                    stacklevel=4,
                )
        return self._opened
