"""Recognises models that are no plain decoder, by model type first and by their keys after that."""

from __future__ import annotations

from collections.abc import Callable

from attnctl.exits import InputError
from attnctl.model.detection import DETECTORS, read_detector
from attnctl.model.encdec import DECODER_ONLY, is_encoder_decoder, read_encoder_decoder
from attnctl.model.encoders import read_encoder
from attnctl.model.keys import Keys
from attnctl.model.peculiar import PECULIAR
from attnctl.model.spec import LayerGroup
from attnctl.model.stages import in_stages, read_stages

Reader = Callable[[Keys], tuple[LayerGroup, ...]]

TEXT_ENCODERS = frozenset(
    """albert align_text_model altclip_text_model bert bert-generation big_bird
    bridgetower bridgetower_text_model bros camembert canine chinese_clip_text_model
    clap_text_model clvp_encoder convbert data2vec-text deberta deberta-v2 distilbert dpr electra
    embedding_gemma2_text ernie esm esmc eurobert flaubert flava_text_model funnel gte ibert
    jina_embeddings_v3 layoutlm layoutlmv2 layoutlmv3 layoutxlm lilt longformer luke markuplm
    megatron-bert mobilebert modernbert mpnet neomme nomic_bert openai_privacy_filter rembert
    roberta roberta-prelayernorm roc_bert roformer sam3_lite_text_text_model siglip2_text_model
    siglip_text_model splinter squeezebert tapas tipsv2_text_model tvp ultrabert
    videoprism_text_model vilt visual_bert xlm xlm-roberta xlm-roberta-xl xlnet xmod
    aimv2_text_model clip_text_model clipseg_text_model groupvit_text_model metaclip_2_text_model
    owlv2_text_model owlvit_text_model xclip_text_model
    new nomic_bert_moe xlm-roberta-flash jina_bert jina_bert_v2 gte_new mosaic_bert""".split()
)
OTHER_ENCODERS = frozenset(
    """audio-spectrogram-transformer beit data2vec-audio data2vec-vision deit dinov2
    dinov2_with_registers dinov3_vit dpt eomt eomt_dinov3 fine_acoustics hubert ijepa mlcd mgp-str
    neucodec patchtst pixio pixtral radio rf_detr_dinov2 sapiens2 seggpt sew sew-d timesfm
    timesfm2_5 timesformer unispeech unispeech-sat videomae videomt vit vit_mae vit_msn vitdet
    vitpose_backbone vits vivit vjepa2 wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm xcodec2
    yolos idefics_perciever molmo2_adapter qwen2_5_omni_dit vision aimv2 moonvit
    nemotron3_5_transcribe_word_timestamp""".split()
)
ENCODER_ENDINGS = (
    "_audio",
    "_audio_model",
    "_audio_encoder",
    "_detr_encoder",
    "_encoder",
    "_geometry_encoder",
    "_image_model",
    "_multimodal_model",
    "_perceiver",
    "_qformer",
    "_transformer_vision",
    "_vision",
    "_vision_encoder",
    "_vision_model",
    "_vit",
    "_vit_model",
)
DECODERS_DESPITE_ENDING = frozenset({"blt_local_encoder", "granite_speech", "phi4_multimodal"})
# the mask of these encoders is causal and their layers are a decoder's; see decoder.py
NONE = frozenset(
    """align_vision_model bit convnext convnextv2 dac dinov3_convnext edgetam_prompt_encoder
    edgetam_video_prompt_encoder efficientnet encodec fastspeech2_conformer_hifigan
    flava_image_codebook fnet focalnet gemma3n_vision gemma4_unified_audio gemma4_unified_vision
    hgnet_v2 inkling_audio mobilenet_v1 mobilenet_v2 muse_spark_audio poolformer pp_lcnet
    pp_lcnet_v3 pp_lcnet_v4 qwen2_5_omni_bigvgan regnet resnet rt_detr_resnet sam2_prompt_encoder
    sam2_video_prompt_encoder sam3_tracker_prompt_encoder sam3_tracker_video_prompt_encoder
    sam_hq_prompt_encoder sam_prompt_encoder sapiens2_head speecht5_hifigan superpoint textnet
    timm_backbone timm_wrapper univnet uvdoc_backbone vibevoice_acoustic_tokenizer
    vibevoice_acoustic_tokenizer_decoder vibevoice_acoustic_tokenizer_encoder
    vibevoice_diffusion""".split()
)
# attention that is no softmax over keys, or over keys that no backend here can be told of
OTHER_MATHEMATICS = {
    "autoformer": "auto-correlation in place of attention",
    "chameleon_vqgan": "convolutions with single attention blocks that the file does not size",
    "emu3_vqgan": "convolutions with single attention blocks that the file does not size",
    "glm_image_vqmodel": "convolutions with single attention blocks that the file does not size",
    "janus_vqgan": "convolutions with single attention blocks that the file does not size",
    "mobilevitv2": "separable linear attention without heads",
    "mra": "multi-resolution attention over picked blocks",
    "nystromformer": "Nystroem attention through landmarks",
    "reformer": "attention inside hash buckets",
    "swiftformer": "additive attention without heads",
    "yoso": "attention by hashed sampling",
}


class NoLayers(InputError):
    """The model has nothing that an attention or state backend would run."""


def reader_of(keys: Keys) -> Reader | None:
    """How to read one object of a config, or None where it looks like a decoder."""
    kind = keys.model_type or ""
    if kind in NONE or gated_out(keys):
        return no_layers
    if kind in OTHER_MATHEMATICS:
        return other_mathematics
    if kind in DETECTORS:
        return read_detector
    if kind in PECULIAR:
        return PECULIAR[kind]
    if in_stages(keys):
        return read_stages
    if kind in DECODER_ONLY or is_encoder_decoder(keys):
        return read_encoder_decoder
    if is_encoder(keys):
        return read_encoder
    return None


def gated_out(keys: Keys) -> bool:
    """PatchTSMixer has attention only where it is switched on."""
    return keys.model_type == "patchtsmixer" and not keys.is_true("self_attn")


def is_encoder(keys: Keys) -> bool:
    kind = keys.model_type or ""
    if kind in TEXT_ENCODERS or kind in OTHER_ENCODERS:
        return True
    if kind in DECODERS_DESPITE_ENDING:
        return False
    return kind.endswith(ENCODER_ENDINGS) or looks_like_vision(keys) or masked_lm(keys)


def looks_like_vision(keys: Keys) -> bool:
    """True for an object about patches of an image that has no vocabulary."""
    seen = sum(name in keys.data for name in ("image_size", "patch_size", "num_channels"))
    return seen >= 2 and "vocab_size" not in keys.data


def masked_lm(keys: Keys) -> bool:
    """True where the architecture's name says that it fills in masked tokens."""
    names = keys.data.get("architectures")
    return isinstance(names, list) and any(str(name).endswith("ForMaskedLM") for name in names)


def no_layers(keys: Keys) -> tuple[LayerGroup, ...]:
    kind = keys.model_type or "this model"
    raise NoLayers(
        f"{keys.ledger.file}: {kind} has no attention or state layers: there is no backend to pick"
    )


def other_mathematics(keys: Keys) -> tuple[LayerGroup, ...]:
    how = OTHER_MATHEMATICS[keys.model_type or ""]
    raise InputError(
        f"{keys.ledger.file}: {keys.model_type} uses {how}, which no backend here runs: "
        "run it with its own modelling code"
    )
