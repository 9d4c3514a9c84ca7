"""Why some readings rightly differ from what transformers' attributes say, by model type.

The cross-check compares with attributes that do not mean the same in every family; what was looked
into and found right is listed here with its reason, so that what remains is worth a look.
"""

from __future__ import annotations

_STAGES = "num_hidden_layers counts stages there"
_BERT = "generates only with is_decoder"
_DETECTOR = "compared with its text model; its own encoder and decoder are what was read"
_TWO_SIDED = "transformers counts one side of the window, the group both"
_PAST_CONTEXT = "the window is longer than max_position_embeddings, so it never binds"

EXPLAINED: dict[str, str] = {
    "bert": _BERT,
    "bert-generation": _BERT,
    "big_bird": _BERT,
    "blt": "made of parts, one of which (the patcher) has a window",
    "camembert": _BERT,
    "clap_audio_model": _STAGES,
    "clvp": "the decoder is read, transformers' attribute is the text encoder",
    "colmodernvbert": _TWO_SIDED,
    "colpali": "embeds and never generates",
    "convbert": "half of the heads are convolutions",
    "data2vec-text": _BERT,
    "dinat": _STAGES,
    "donut-swin": _STAGES,
    "electra": _BERT,
    "embedding_gemma2": _TWO_SIDED,
    "embedding_gemma2_text": _TWO_SIDED,
    "ernie": _BERT,
    "esmfold2": "the window is that of the atom encoder, whose object states no model type",
    "exaone4": _PAST_CONTEXT,
    "exaone4_5": _PAST_CONTEXT,
    "exaone_moe": _PAST_CONTEXT,
    "falcon": "multi_query overrides num_kv_heads",
    "funnel": "the layers of its decoder are attention layers too",
    "gpt_neo": "window_size is its own name for the window",
    "grounding-dino": _DETECTOR,
    "llama4": "the chunk is the window",
    "llama4_text": "the chunk is the window",
    "longformer": "attention_window is its own name for the window",
    "mask2former": "the last of decoder_layers is not built",
    "megatron-bert": _BERT,
    "mllama_vision_model": "num_global_layers come on top of num_hidden_layers",
    "mm-grounding-dino": _DETECTOR,
    "mobilebert": "attention runs in the bottleneck (true_hidden_size)",
    "modernbert": _TWO_SIDED,
    "modernvbert": _TWO_SIDED,
    "moonshine_streaming_encoder": "sliding_windows is its own name for the windows",
    "muse_glimmer_vision": "square windows of patches are no token windows",
    "muse_spark_vision": "square windows of patches are no token windows",
    "neomme": _TWO_SIDED,
    "nemotron_asr_streaming_encoder": "left context of chunks, not a window of tokens",
    "olmo3": _PAST_CONTEXT,
    "omdet-turbo": _DETECTOR,
    "oneformer": "the last of decoder_layers is not built",
    "openai_privacy_filter": _TWO_SIDED,
    "pe_audio": _TWO_SIDED,
    "pe_audio_video": _TWO_SIDED,
    "pe_video": _TWO_SIDED,
    "pp_formulanet": "decoder_layers is the depth, transformers' attribute the encoder's",
    "qwen2_vl_vision": "embed_dim is the width, hidden_size that of the output",
    "rembert": _BERT,
    "roberta": _BERT,
    "roberta-prelayernorm": _BERT,
    "roc_bert": _BERT,
    "roformer": _BERT,
    "sam3": "compared with its text model; its parts are what was read",
    "sam3_lite_text": "compared with its text model; its parts are what was read",
    "segformer": _STAGES,
    "swin": _STAGES,
    "swin2sr": _STAGES,
    "swinv2": _STAGES,
    "ultrabert": _TWO_SIDED,
    "ultravbert": _TWO_SIDED,
    "unlimited_ocr": "the prompt stays visible beside the window, so the cache is whole",
    "unlimited_ocr_text": "the prompt stays visible beside the window, so the cache is whole",
    "xlm": "its mask is causal only with the flag `causal`",
    "xlm-roberta": _BERT,
    "xlm-roberta-xl": _BERT,
    "xlnet": "permutes instead of masking: both sides are seen",
    "xmod": _BERT,
}
# model types without attention whose modelling file also holds a sibling that has it
SHARED_SOURCE: frozenset[str] = frozenset(
    {
        "align_vision_model",
        "edgetam_prompt_encoder",
        "edgetam_video_prompt_encoder",
        "edgetam_vision_model",
        "fastspeech2_conformer_hifigan",
        "flava_image_codebook",
        "gemma3n_vision",
        "gemma4_unified_audio",
        "gemma4_unified_vision",
        "inkling_audio",
        "muse_spark_audio",
        "qwen2_5_omni_bigvgan",
        "sam2_prompt_encoder",
        "sam2_video_prompt_encoder",
        "sam3_tracker_prompt_encoder",
        "sam3_tracker_video_prompt_encoder",
        "sam_hq_prompt_encoder",
        "sam_prompt_encoder",
        "sapiens2_head",
        "speecht5_hifigan",
        # named after attention: gates inside an MLP, and a gated recurrent cell over features
        "patchtsmixer",
        "slanet",
    }
)
