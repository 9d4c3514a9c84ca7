"""The library call: what a user's own program does with the backend that a decision picked.

    backend = attnctl.open_backend("CPU_ATTN")
    cache = torch.empty(backend.cache_shape(N, P, Hk, D), dtype=torch.bfloat16)
    metadata = backend.build_metadata(
        query_start_loc, seq_lens, block_table, slot_mapping, max_query_len=..., max_seq_len=...
    )
    params = attnctl.ops.paged.Paged(scale=D**-0.5)
    backend.write_cache(key, value, cache, metadata, params)
    out = backend.forward(query, cache, metadata, params)

P is a size that the backend takes (16 and its multiples; 32 for CPU_ATTN, 64 for AITER's unified
attention): cache_shape refuses another.

A backend that keeps states instead of a cache (is_ssm) has no write_cache: its forward reads each
sequence's state from a slot of a pool and leaves the new one there.

    pools = {name: torch.zeros(slots, *shape) for name, shape in backend.state_shapes(state)}
    metadata = backend.build_metadata(query_start_loc, state_indices, num_computed_tokens, ...)
    out = backend.forward(inputs, pools["ssm"], metadata)

A backend's folder holds kernel.py with RUNTIME, an object of one of these protocols.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from attnctl.arguments import refuse_other
from attnctl.exits import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from attnctl.latent_runtime import MlaRuntime, MlaSparseRuntime
    from attnctl.model.spec import State
    from attnctl.ops.paged import Paged
    from attnctl.registry import Registry


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """One batch, packed. Integers are known on the host, so that no call waits for the device.

    query_start_loc: [B + 1] int32. seq_lens: [B] int32, context tokens with this batch's own.
    block_table: [B, pages] int32. slot_mapping: [T] int64, page * P + offset of each new token,
    -1 for tokens that are not written. max_query_len, max_seq_len: bounds, exact or above.
    """

    query_start_loc: Tensor
    seq_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor
    max_query_len: int
    max_seq_len: int


class BatchRuntime(Protocol):
    """What every backend with a paged cache has, whatever lies in it."""

    def get_name(self) -> str: ...

    def is_ssm(self) -> bool: ...

    def build_metadata(
        self,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        slot_mapping: Tensor,
        *,
        max_query_len: int,
        max_seq_len: int,
    ) -> Metadata:
        """The batch, as Metadata says, for all layers of a kind.

        InputError: tensors of other kinds, ranks or devices, or other numbers of sequences; on a
        processor also offsets that decrease, lengths that the batch exceeds, bounds too low.
        """


@runtime_checkable
class PagedRuntime(BatchRuntime, Protocol):
    """A backend of the paged-attention family.

    key: [T, Hk, D], value: [T, Hk, Dv], query: [T, H, D]: any strides, the last dimension dense.
    cache: what cache_shape says, K and V of a token side by side in the last dimension.
    InputError, of every call: tensors of other kinds, shapes, dtypes or devices, a cache or `out`
    whose tokens or rows lie on one another; on a processor also pages and slots that there are not.
    """

    def cache_shape(
        self,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        head_size_v: int | None = None,
    ) -> tuple[int, ...]:
        """(N, P, Hk, D + Dv), or the backend's own order of the same. InputError on a bad P."""

    def write_cache(
        self, key: Tensor, value: Tensor, cache: Tensor, metadata: Metadata, params: Paged
    ) -> None:
        """Stores each new token's K and V in its slot; slot -1 and rows past the slots: nothing."""

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """Attention of every query token over its sequence's cached context: [T, H, Dv]."""


class StateMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of sequences whose states lie in slots, K drafts at most under verification.

    query_start_loc: [B + 1] int32; a sequence without tokens changes nothing.
    state_indices: [B, 1 + K] int32, slots of the pool; a row whose first is negative is padding:
    its tokens and states are neither read nor written. Other negative columns are not written.
    has_initial_state: [B] bool; where false the state starts from zero, whatever its slot holds.
    num_accepted: [B] int32, None for 1 everywhere: tokens of the row's last step that stayed; the
    state is read from column num_accepted - 1. From 1 on in every row, padding too: a GPU's kernels
    go by it before they know.
    speculative: [B] bool, None for false everywhere: the state after token t goes to column t;
    elsewhere only the last state is kept, in column 0.
    num_spec: K. max_query_len: bound on tokens per sequence, exact or above.
    """

    query_start_loc: Tensor
    state_indices: Tensor
    has_initial_state: Tensor
    max_query_len: int
    num_accepted: Tensor | None = None
    speculative: Tensor | None = None
    num_spec: int = 0


@runtime_checkable
class StateRuntime(Protocol):
    """A backend that keeps a fixed-size state per sequence (is_ssm is True).

    inputs: the operation's own value (attnctl.ops.gdn.Gdn, mamba2.Mamba2, ...), T tokens packed.
    state: a pool [slots, ...] as state_shapes says; slots may lie apart, each is dense.
    """

    def get_name(self) -> str: ...

    def is_ssm(self) -> bool: ...

    def state_shapes(
        self, state: State, tp: int = 1, num_spec: int = 0
    ) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Name ("conv", "ssm") and shape of each state tensor of one slot on one rank."""

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
        """num_computed_tokens: [B] int; 0 is a first chunk, even one of a single token.

        InputError: tensors of other kinds, ranks or devices, or other numbers of rows; on a
        processor also offsets that decrease, one slot for two sequences, bounds too low.
        """

    def forward(
        self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor | None = None
    ) -> Tensor:
        """Outputs of every token, [T, ...]; states in place. Padding rows of `out` stay as is.

        InputError: tensors of other kinds, shapes, float dtypes or devices than the operation's, a
        pool or `out` whose slots or rows lie on one another; on a processor also slots and tokens
        that there are not. Nothing is read from a GPU for it, and nothing is written then.
        """


Runtime: TypeAlias = "PagedRuntime | StateRuntime | MlaRuntime | MlaSparseRuntime"


def open_backend(name: str, registry: Registry | None = None, *, kernel: str = "") -> Any:
    """The runtime of a backend: one of the protocols in Runtime, as its operation says.

    kernel: a rival of the backend's own ("fla" for GDN_ATTN), "" for its own. InputError: no such
    backend or kernel, or its kernel is not written yet.
    """
    from attnctl.registry import Registry, load

    registry = load() if registry is None else registry
    refuse_other("registry", registry, Registry, "what attnctl.load_registry() returns")
    backend = registry.get(name)
    if backend is None:
        known = ", ".join(sorted(b.name for b in registry.backends))
        raise InputError(f"{name}: no such backend; there are {known}")
    if backend.kernel == "planned":
        raise InputError(f"{name}: its kernel is planned and not written yet; pick another backend")
    runtime = import_module(f"{backend.module}.kernel").RUNTIME
    if not kernel:
        return runtime
    rivals = tuple(rival.name for rival in backend.rivals)
    if kernel not in rivals:
        have = f"its rival kernels are {', '.join(rivals)}" if rivals else "it has no rival kernels"
        raise InputError(f"{name}: no kernel {kernel!r}; {have}")
    return runtime.with_knobs({}, kernel)
