"""What is compiled for GPUs that are not here: CASES meets every kernel once, MORE its variants."""

# Nemotron-H; MORE ends with Falcon-H1
_LAYER = "heads=128,groups=8,state_size=128"
_VERIFY = f"queries=4+4,initial=all,drafts=3,accepted=1+2,{_LAYER}"

# states of more than FEW elements, whose tile is another
_MANY = "1+1"

CASES = (f"mamba2(queries=2048,{_LAYER})", f"mamba2(queries={_MANY},initial=all,{_LAYER})")
MORE = (
    f"mamba2({_VERIFY})",
    f"mamba2(queries=1,initial=all,{_LAYER})",
    f"mamba2(queries=1+1,initial=all,state_dtype=bfloat16,{_LAYER})",
    "mamba2(queries=2048,heads=32,state_size=256)",
)
