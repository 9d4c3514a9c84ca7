"""What is compiled for GPUs that are not here: CASES meets every kernel once, MORE its variants."""

_BATCH = "queries=1+1,contexts=4096+4096,topk=2048"

CASES = (f"mla_sparse({_BATCH})", f"indexer({_BATCH})")
MORE = (
    f"mla_sparse({_BATCH},heads=128)",
    f"mla_sparse({_BATCH},kv_cache_dtype=fp8_ds_mla)",
    f"mla_sparse({_BATCH},heads=128,kv_cache_dtype=fp8_ds_mla)",
    # refused where a block has 64 KiB of shared memory
    f"mla_sparse({_BATCH},dtype=float32)",
    f"indexer({_BATCH},query_dtype=fp8_e4m3)",
    # long rows of few tokens are picked from in pieces
    "indexer(queries=1,contexts=8192,topk=2048)",
)
# rows of 512 columns, widened from FP8, are more than RDNA's registers hold: slow there, and right
SPILLS = {"gfx11": 5120, "gfx12": 768}
