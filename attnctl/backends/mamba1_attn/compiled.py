"""What is compiled for GPUs that are not here: CASES meets every kernel once, MORE its variants."""

# Falcon Mamba
_LAYER = "channels=8192"
_VERIFY = f"queries=4+4,initial=all,drafts=3,accepted=1+2,{_LAYER}"

# states of more than FEW elements, whose tile is another
_MANY = "1+1+1+1+1+1+1+1+1"

CASES = (f"mamba1(queries=2048,{_LAYER})", f"mamba1(queries={_MANY},initial=all,{_LAYER})")
MORE = (
    f"mamba1({_VERIFY})",
    f"mamba1(queries=1+1,initial=all,{_LAYER})",
    f"mamba1(queries=1+1,initial=all,state_dtype=bfloat16,{_LAYER})",
)
