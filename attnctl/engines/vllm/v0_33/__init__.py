"""The table of vLLM 0.33.0, written from the rules that its released wheel follows."""

from __future__ import annotations

from attnctl.engines.vllm.rules import Table
from attnctl.engines.vllm.v0_33 import cuda, mla, orders, other, prefill, rocm, sparse

STATE_BACKENDS = {
    "mamba1": "MAMBA1_ATTN",
    "mamba2": "MAMBA2_ATTN",
    "short_conv": "SHORT_CONV_ATTN",
    "linear": "LINEAR_ATTN",
    "gdn": "GDN_ATTN",
    "kda": "GDN_ATTN",
}

TABLE = Table(
    version="0.33.0",
    backends={
        row.name: row for row in (*cuda.ROWS, *mla.ROWS, *sparse.ROWS, *rocm.ROWS, *other.ROWS)
    },
    orders=orders.ORDERS,
    branches=other.BRANCHES,
    prefill=prefill.ROWS,
    prefill_orders=prefill.ORDERS,
    state_backends=STATE_BACKENDS,
    unequal_widths=orders.UNEQUAL_WIDTHS,
    default_block_sizes={"cuda": 16, "rocm": 16, "xpu": 16, "cpu": 128},
)
