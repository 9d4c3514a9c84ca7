"""What is compiled for GPUs that are not here: CASES meets every kernel once, MORE its variants."""

# Qwen3-Next; MORE ends with LFM2
_LAYER = "channels=8192"
_VERIFY = f"queries=4+4,initial=all,drafts=3,accepted=1+2,{_LAYER}"

_HALF = f"weights=bfloat16,state_dtype=bfloat16,{_LAYER}"

CASES = (f"short_conv(queries=2048,{_HALF})", f"short_conv(queries=1+1,initial=all,{_HALF})")
MORE = (
    f"short_conv({_VERIFY})",
    f"short_conv(queries=2048,{_LAYER})",
    f"short_conv(queries=1+1,initial=all,{_LAYER})",
    "short_conv(queries=2048,channels=2048,width=3)",
)
