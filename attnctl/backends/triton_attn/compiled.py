"""What is compiled for GPUs that are not here: CASES meets every kernel once, MORE its variants."""

_LAYER = "heads=32,kv_heads=8,dtype=bfloat16"
_PREFILL = f"queries=2048,contexts=2048,{_LAYER}"
_DECODE = f"queries=1+1,contexts=2048+2048,{_LAYER}"
_BATCHES = (_PREFILL, _DECODE)

CASES = tuple(f"paged({batch},head_size=128)" for batch in _BATCHES)
MORE = (
    *(f"paged({batch},head_size={size})" for size in (64, 256) for batch in _BATCHES),
    # by tensor descriptors, where the arch has them; with a window Hopper's own kernel does not run
    *(f"paged({_PREFILL},head_size=128,page=128{more})" for more in ("", ",window=1024")),
    f"paged({_PREFILL},head_size=128,window=1024)",
    *(
        f"paged({batch},head_size=128,kv_cache_dtype={stored})"
        for stored in ("fp8_e4m3", "fp8_e5m2", "int8_per_token_head")
        for batch in _BATCHES
    ),
    *(
        f"paged({batch},head_size=128)".replace("bfloat16", dtype)
        for dtype in ("float16", "float32")
        for batch in _BATCHES
    ),
    # gpt-oss, Gemma 2
    f"paged({_DECODE},head_size=64,window=128,sinks=true)",
    f"paged({_PREFILL},head_size=256,window=4096,softcap=50.0)",
)
SPILLS = {"gfx11": 1536, "gfx12": 1152}
