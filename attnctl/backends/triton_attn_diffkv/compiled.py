"""What is compiled for GPUs that are not here: CASES meets every kernel once, MORE its variants."""

# MiMo-V2
_LAYER = "heads=64,kv_heads=4,head_size=192,head_size_v=128,dtype=bfloat16"
_PREFILL = f"queries=2048,contexts=2048,{_LAYER}"
_DECODE = f"queries=1+1,contexts=2048+2048,{_LAYER}"

CASES = (f"diffkv({_PREFILL})", f"diffkv({_DECODE})")
MORE = (f"diffkv({_DECODE},kv_cache_dtype=fp8_e4m3)",)
