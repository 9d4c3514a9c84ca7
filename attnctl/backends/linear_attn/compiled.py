"""What is compiled for GPUs that are not here: CASES meets every kernel once, MORE its variants."""

# MiniMax-Text
_LAYER = "heads=64,head_dim=128"
_VERIFY = f"queries=4+4,initial=all,drafts=3,accepted=1+2,{_LAYER}"

CASES = (f"linear(queries=2048,{_LAYER})", f"linear(queries=1+1,initial=all,{_LAYER})")
MORE = (
    f"linear({_VERIFY})",
    f"linear(queries=1+1,initial=all,state_dtype=bfloat16,{_LAYER})",
)
