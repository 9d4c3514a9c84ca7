"""Paged attention on torch's flex_attention.

A batch is cut into work items of up to Q rows of one sequence; they are flex_attention's batch, so
that one kernel with a fixed query length serves prefill and decode, and only the number of items
changes with the lengths. Every mask of the specification lets a query token see one interval of
positions that holds itself (causal, windows and chunks cut an interval; the bidirectional ranges it
lies in reach across it), so two tensors say the whole mask, and blocks follow from them by
arithmetic: nothing is evaluated over queries times context, as create_block_mask would.
"""
