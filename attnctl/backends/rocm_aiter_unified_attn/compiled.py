"""What is compiled for GPUs that are not here: the bundled kernel, which TRITON_ATTN has too."""

_LAYER = "heads=32,kv_heads=8,head_size=128,page=64,dtype=bfloat16"

MORE = (
    f"paged(queries=2048,contexts=2048,{_LAYER})",
    f"paged(queries=1+1,contexts=2048+2048,{_LAYER})",
)
