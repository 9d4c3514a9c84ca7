"""What is compiled for GPUs that are not here: CASES meets every kernel once, MORE its variants."""

# Qwen3-Next; MORE ends with Kimi Linear
_WIDTHS = "v_heads=32,head_k_dim=128,head_v_dim=128"
_LAYER = f"k_heads=16,{_WIDTHS}"
_VERIFY = f"queries=4+4,initial=all,drafts=3,accepted=1+2,{_LAYER}"

# states of more than FEW elements, whose tile is another
_MANY = "1+1+1"

CASES = (f"gdn(queries=2048,{_LAYER})", f"gdn(queries={_MANY},initial=all,{_LAYER})")
MORE = (
    f"gdn({_VERIFY})",
    f"gdn(queries=1,initial=all,{_LAYER})",
    f"gdn(queries=1+1,initial=all,state_dtype=bfloat16,{_LAYER})",
    *(
        f"gdn(queries={tokens},kda=true,gate=true,k_heads=32,{_WIDTHS})"
        for tokens in ("2048", "1+1")
    ),
)

# a gate per channel spills there whatever the tiles (of 16 to 64 tokens, 4 to 8 warps)
SPILLS = {"gfx11": 3072}
