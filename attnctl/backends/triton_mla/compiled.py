"""What is compiled for GPUs that are not here: CASES meets every kernel once, MORE its variants."""

_DECODE = "queries=1+1,contexts=2048+2048"
_PREFILL = "form=uncompressed,queries=512,contexts=1024"

CASES = (
    f"mla({_DECODE},heads=16)",
    f"mla({_PREFILL},heads=16)",
    "merge_states(tokens=64)",
)
MORE = (
    f"mla({_DECODE},heads=128)",
    f"mla({_DECODE},heads=16,kv_cache_dtype=fp8_e4m3)",
    # MiniCPM3
    f"mla({_DECODE},heads=40,lora=256,rope=32,nope=64,v=64)",
    f"mla({_PREFILL},heads=40,lora=256,rope=32,nope=64,v=64)",
    # refused where a block has 64 KiB of shared memory
    f"mla({_DECODE},heads=16,dtype=float32)",
    f"mla({_PREFILL},heads=16,dtype=float32)",
    # on Hopper each of these has tiles of its own
    *(
        f"mla(form=uncompressed,queries={length},contexts={length},heads=16)"
        for length in (17, 64, 200)
    ),
    "merge_states(tokens=64,v=512)",
)
# rows of 512 columns are more than RDNA 3's registers hold: slow there, and right
SPILLS = {"gfx11": 1792}
