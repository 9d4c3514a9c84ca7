"""Codes of the rules that decide which backend may serve a layer, and of profiles."""

from __future__ import annotations

Row = tuple[str, str, str]

DEVICE: dict[str, Row] = {
    "platform": (
        "The backend is for another kind of device",
        "A backend has kernels for NVIDIA (CUDA), AMD (ROCm), Intel (XPU), the processor, or "
        "several of them. The platform is that of the first visible GPU, else the CPU.",
        "Nothing here. If a GPU should be there, `attnctl probe` says why it is not seen.",
    ),
    "compute_capability": (
        "The NVIDIA GPU is too old, too new, or of another line",
        "Kernels are built for a range of compute capabilities. Some are for one generation only: "
        "Hopper is 9.0, data-centre Blackwell 10.x, workstation Blackwell 12.x.",
        "Take a backend without that limit; TRITON_ATTN, TRITON_MLA and TRITON_MLA_SPARSE run from "
        "7.0 on.",
    ),
    "arch": (
        "The AMD GPU is of an architecture without these kernels",
        "AITER's kernels are for matrix-core accelerators from the MI300 on (gfx94x, gfx95x).",
        "Take a Triton backend: they compile for every architecture that Triton knows.",
    ),
    "isa": (
        "The processor lacks an instruction set, or it is not usable here",
        "An instruction set may be advertised and still be off: AMX needs the kernel's permission, "
        "AVX-512 the operating system's support for its registers.",
        "`attnctl probe` lists what is usable and why the rest is not.",
    ),
    "device_dtype": (
        "The device does not compute in this number format",
        "NVIDIA GPUs before compute capability 8.0 have no bfloat16.",
        "Run the model in half precision: --dtype float16.",
    ),
    "fp8_hardware": (
        "The device cannot convert this FP8 cache",
        "e4m3 caches (fp8, fp8_e4m3) need compute capability 8.9 in Triton, e5m2 needs 8.0. What "
        "a finding calls cross-compilation a compiler has proved; `attnctl smoke` proves it on the "
        "device.",
        "On 8.0 to 8.8: --kv-cache-dtype fp8_e5m2. On older GPUs: --kv-cache-dtype auto, or "
        "float16 where the checkpoint quantises its cache (auto keeps that).",
    ),
    "shared_memory": (
        "The smallest tile does not fit the GPU's on-chip memory",
        "A kernel holds a tile of queries, keys and values in shared memory (LDS on AMD). Its "
        "bytes grow with the head size and with the width of the dtype.",
        "Where the dtype is float32, --dtype float16 or bfloat16 halves it.",
    ),
}

SOFTWARE: dict[str, Row] = {
    "package_missing": (
        "A package that the backend calls is not installed, or cannot run here",
        "Packages are found by their files, never imported. One that is installed may still be of "
        "the wrong build, or lack a compiler: the finding says which. Unknown means that nobody "
        "looked, as for a bundled machine.",
        "Install it, or say that it is there: --assume-installed NAME.",
    ),
    "flash_version": (
        "No FlashAttention version takes this layer on this GPU",
        "FA2 needs compute capability 8.0, FA3 9.x, FA4 9.x to 11.x. ALiBi is in FA2 alone; "
        "unequal K and V widths need FA3 or FA4; vLLM's wheel carries all three.",
        "Install the version that the finding names.",
    ),
}

LAYER: dict[str, Row] = {
    "operation": (
        "The backend computes another operation",
        "A layer needs one operation: paged attention, the same with unequal K and V widths "
        "(diffkv), dense or sparse latent attention (mla, mla_sparse), or a recurrence (gdn, "
        "mamba1, mamba2, short_conv, linear). Dense latent attention is no sparse one.",
        "Nothing: the model's architecture decides it.",
    ),
    "dtype": (
        "The backend does not compute in the model's dtype",
        "The dtype is --dtype, else the config's dtype or torch_dtype, else a marked guess.",
        "Choose a dtype that the finding lists, with --dtype.",
    ),
    "kv_cache_dtype": (
        "The backend does not store its cache in this format",
        "The format is --kv-cache-dtype, else what the checkpoint's quantisation says, else the "
        "model's dtype (auto).",
        "Choose a format that the finding lists, with --kv-cache-dtype. Where the checkpoint has a "
        "format of its own, auto is that one: name the compute dtype instead.",
    ),
    "head_size": (
        "The head size is not one of the kernel's",
        "Library kernels are built for a few head sizes; the portable ones take ranges. Latent "
        "attention counts the cached row: kv_lora_rank + qk_rope_head_dim.",
        "Nothing on the command line; another backend takes it.",
    ),
    "block_size": (
        "The cache block that you fixed does not split into kernel blocks",
        "A block must be a multiple of one of the kernel's own block sizes. Left alone, each "
        "backend gets one that suits it.",
        "Leave --block-size out, or give a multiple of a size that the finding lists.",
    ),
    "tensor_parallel": (
        "Heads or channels do not divide among the tensor-parallel ranks",
        "Each rank holds an equal share of the query heads, of the heads or channels of a state, "
        "and of the KV heads or groups; where there are fewer of these than ranks, whole copies of "
        "them. It is asked of every backend.",
        "Take the number of ranks that the finding names, with --tp.",
    ),
    "encoder_decoder": (
        "The backend does not serve encoder-decoder models",
        "vLLM's ROCm attention is left out for the whole of such a model, its decoder included.",
        "Nothing: another backend takes it.",
    ),
    "mla_dims": (
        "The latent widths are not those that the kernel was built for",
        "kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim and v_head_dim of the config.",
        "Nothing: TRITON_MLA and TRITON_MLA_SPARSE take any.",
    ),
    "index_topk": (
        "The number of tokens that the indexer picks is missing or not the kernel's",
        "Sparse latent attention reads index_topk tokens per query.",
        "Check index_topk in the config.",
    ),
    "head_size_512": (
        "Sparse rows of 512 are FlashMLA's on Hopper only",
        "Models without a rope part have rows of 512; on 9.x the cache must be auto, bfloat16 or "
        "fp8_ds_mla.",
        "Nothing: TRITON_MLA_SPARSE takes them.",
    ),
    "conv_width": (
        "The convolution before the recurrence is wider than the kernel's",
        "The kernels keep the last taps of each channel in registers.",
        "Nothing: the model's architecture decides it.",
    ),
    "key_width": (
        "The key width of the gated delta rule is larger than the kernel's",
        "A state's rows stay on chip while a chunk is computed.",
        "Nothing: the model's architecture decides it.",
    ),
    "feature": (
        "The layer demands something that no backend here has heard of",
        "A feature that is not known counts as no.",
        "Upgrade attnctl, or report the config.",
    ),
}

FEATURE: dict[str, Row] = {
    "encoder": (
        "No bidirectional attention beside a decoder",
        "The encoder of an encoder-decoder model (Whisper, T5) attends in both directions.",
        "Nothing: another backend takes it.",
    ),
    "encoder_only": (
        "No bidirectional attention without a cache",
        "Encoder-only models (BERT and its kin) attend in both directions and cache nothing.",
        "Nothing: another backend takes it.",
    ),
    "cross": (
        "No cross-attention",
        "The decoder's queries read keys and values that the encoder wrote once.",
        "Nothing: another backend takes it.",
    ),
    "sliding_window": (
        "No sliding window",
        "Each query sees the last tokens only, itself included.",
        "Nothing: another backend takes it.",
    ),
    "two_sided_window": (
        "No window to both sides",
        "An encoder's local layers (ModernBERT) see neighbours on both sides.",
        "Nothing: another backend takes it.",
    ),
    "chunked": (
        "No attention inside fixed chunks",
        "Llama 4's local layers see their own chunk only.",
        "Nothing: another backend takes it.",
    ),
    "blocksparse": (
        "No block-sparse pattern",
        "Phi-3-small's layers attend to a fixed pattern of blocks that differs from head to head. "
        "No backend here computes it.",
        "Another model, or an engine that runs the model's own code.",
    ),
    "chunk": (
        "Chunks are not whole blocks",
        "Llama 4's local layers see their own chunk of the sequence. Kernels that have no chunks "
        "take each as a sequence of its own, whose block table begins with a whole block.",
        "A --block-size that divides the chunk, or leave --block-size out.",
    ),
    "sinks": (
        "No attention sinks",
        "gpt-oss and MiMo-V2 add a learned logit per head to the softmax. FlashAttention has it in "
        "FA4, and in FA3 as vLLM builds it, on 9.0 and newer; FlashInfer where its cubins are.",
        "For FLASHINFER: pip install flashinfer-cubin. Otherwise TRITON_ATTN has them.",
    ),
    "softcap": (
        "No soft-capped logits",
        "Gemma 2 and Grok squash the logits by tanh before the softmax.",
        "Nothing: another backend takes it.",
    ),
    "alibi": (
        "No ALiBi position biases",
        "BLOOM, MPT and Baichuan-13B add a bias that grows with distance.",
        "Nothing: another backend takes it.",
    ),
    "prefix_lm": (
        "No bidirectional prefixes",
        "Multimodal models let the tokens of an image see each other in both directions. "
        "FlashAttention has it in FA4, without an FP8 cache on 9.0.",
        "Nothing: another backend takes it.",
    ),
    "score_bias": (
        "No learned biases on the scores",
        "T5, DeBERTa and their like add a learned bias to each score, by relative position.",
        "Run the model with its own modelling code: no backend here takes such biases.",
    ),
    "kda_gate": (
        "No decay gate per channel",
        "Kimi Linear's delta rule decays each channel of a key by itself.",
        "Nothing: another backend takes it.",
    ),
}

PROFILE: dict[str, Row] = {
    "profile_key": (
        "The tuned profile is of other hardware",
        "A profile is keyed by vendor, architecture, PCI device and unit count, not by a product's "
        "name. One that does not fit is ignored, and one whose facts are unknown is not trusted.",
        "Take a profile that was timed on such hardware, or leave --profile out.",
    ),
    "profile_version": (
        "The tuned profile was made with another torch or Triton",
        "Its timings are stale: they are used, and said to be stale.",
        "Take a profile that was timed with these versions; until then it is used as it is.",
    ),
    "profile_driver": (
        "The tuned profile was made with another driver",
        "A note: timings seldom change with the driver.",
        "Nothing, unless timings look wrong.",
    ),
    "profile_memory": (
        "The tuned profile was made on a part with other memory",
        "A note: another board of the same chip, or a slice of it, may have other bandwidth.",
        "Tune on this part where the picks matter.",
    ),
    "profile_kernel": (
        "A kernel's source has changed since it was timed",
        "Its timings are dead and left out; those of other kernels live on.",
        "Tune again; `attnctl profile prune` takes the dead timings out of a file.",
    ),
}
