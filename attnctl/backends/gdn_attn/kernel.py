"""GDN_ATTN's runtime: the gated delta rule, with a gate per head or per channel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnctl.backends.gdn_attn.metadata import GdnMetadata, pieces, split
from attnctl.backends.gdn_attn.split_checks import check_batch_to_split, check_split
from attnctl.kernels.states.runtime import StateAttention
from attnctl.ops.gdn import Gdn
from attnctl.ops.states import over_tensors, take
from attnctl.runtime import StateMetadata


class GdnAttention(StateAttention):
    """StateRuntime that also takes a batch split as engines split it (metadata.GdnMetadata)."""

    def build_split(
        self,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        state_indices: Tensor,
        *,
        num_drafts: Sequence[int] | None = None,
        num_accepted: Tensor | None = None,
        num_spec: int = 0,
        device: torch.device | str = "cpu",
    ) -> GdnMetadata:
        """The halves of a batch for forward on `device`; metadata.split says what is given.

        The arguments are on the host, where engines lay a batch out. InputError: they contradict
        each other.
        """
        check_batch_to_split(
            self.get_name(), query_start_loc, seq_lens, state_indices, num_drafts, num_accepted,
            num_spec,
        )  # fmt: skip
        found = split(
            query_start_loc, seq_lens, state_indices, num_drafts=num_drafts,
            num_accepted=num_accepted, num_spec=num_spec,
        )  # fmt: skip
        return over_tensors(found, lambda tensor: tensor.to(device))

    def forward(
        self,
        inputs: Gdn,
        state: Tensor,
        metadata: StateMetadata | GdnMetadata,
        out: Tensor | None = None,
    ) -> Tensor:
        """[T, Hv, Dv]: outputs of every token; states in place. InputError: as of StateAttention,
        or a split that lacks a part."""
        if not isinstance(metadata, GdnMetadata):
            return super().forward(inputs, state, metadata, out)
        out = self._checked(inputs, state, out)
        check_split(self.get_name(), metadata, out)
        for tokens, batch in pieces(metadata):
            part = take(inputs, tokens)
            if isinstance(tokens, slice):
                self._run(part, state, batch, out[tokens])
            else:
                # a copy, in which padding keeps what it held
                found = out[tokens]
                self._run(part, state, batch, found)
                with torch.no_grad():
                    out[tokens] = found
        return out


RUNTIME = GdnAttention("GDN_ATTN", "gdn", ("gdn", "kda"), ("fla", "flashinfer"))
