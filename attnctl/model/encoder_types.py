"""Which function reads which model that is no plain decoder; the same form as families.py.

This module is data and a few looks at keys, so that reading a decoder imports nothing of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

from attnctl.model.keys import Keys
from attnctl.model.nesting import Config


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ENCODERS: Mapping[str, frozenset[str]] = {
    "encoders:read": _names(
        """albert align_text_model altclip_text_model bert bert-generation big_bird
        blip_text_model bridgetower bridgetower_text_model bros camembert
        chinese_clip_text_model clap_text_model clvp_encoder convbert data2vec-text deberta
        deberta-v2 deepseek_ocr2_encoder distilbert dpr electra embedding_gemma2_text ernie esm
        esmc eurobert flaubert flava_text_model funnel gte ibert jina_embeddings_v3 layoutlm
        layoutlmv2 layoutlmv3 layoutxlm lilt longformer luke
        markuplm megatron-bert mobilebert modernbert mpnet neomme new nomic_bert
        openai_privacy_filter rembert roberta roberta-prelayernorm roc_bert roformer t5gemma2_text
        siglip2_text_model siglip_text_model splinter squeezebert tapas
        tipsv2_text_model tvp ultrabert videoprism_text_model vilt visual_bert xlm xlm-roberta
        xlm-roberta-flash xlm-roberta-xl xlnet xmod

        aimv2_text_model clip_text_model clipseg_text_model groupvit_text_model
        metaclip_2_text_model owlv2_text_model owlvit_text_model xclip_text_model

        audio-spectrogram-transformer beit data2vec-audio data2vec-vision deit dinov2
        dinov2_with_registers dinov3_vit dpt eomt eomt_dinov3 fine_acoustics hubert ijepa mlcd
        mlcd_vision_model mgp-str moonvit neucodec patchtst pixio pixtral qwen2_5_omni_dit radio
        rf_detr_dinov2 sapiens2 seggpt sew sew-d timesfm timesfm2_5 unispeech
        unispeech-sat videomae videomt vit vit_mae vit_msn vitdet vitpose_backbone vits vivit
        wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm xcodec2 yolos

        idefics_perciever nemotron3_5_transcribe_word_timestamp"""
    ),
    "encdec:read": _names(
        """bart bigbird_pegasus blenderbot blenderbot-small byt5 fsmt led longt5 m2m_100 marian
        mbart moonshine mt5 mvp nllb-moe pegasus pegasus_x plbart pop2piano pp_formulanet_text
        prophetnet seamless_m4t seamless_m4t_v2 speech_to_text speecht5 switch_transformers t5
        time_series_transformer trocr udop umt5 whisper"""
    ),
    "detection:read": _names(
        """conditional_detr d_fine dab-detr deformable_detr deimv2 detr grounding-dino lw_detr
        mask2former maskformer mm-grounding-dino omdet-turbo oneformer pp_doclayout_v2
        pp_doclayout_v3 pp_doclayout_v4 rf_detr rt_detr rt_detr_v2 table-transformer"""
    ),
    "peculiar:read": _names(
        """blip_2_qformer canine efficientloftr fastspeech2_conformer instructblip_qformer
        instructblipvideo_qformer lightglue lxmert mllama_vision_model molmo2_adapter
        perceiver sam3_detr_decoder sam3_detr_encoder sam3_geometry_encoder
        sam3_lite_text_detr_decoder sam3_lite_text_detr_encoder sam3_lite_text_geometry_encoder
        sam3_lite_text_mask_decoder sam3_lite_text_text_model sam3_mask_decoder superglue
        timesformer videoprism_vision_model vjepa2"""
    ),
    "mask_decoder:read": _names(
        """edgetam_mask_decoder edgetam_video_mask_decoder sam2_mask_decoder
        sam2_video_mask_decoder sam3_tracker_mask_decoder sam3_tracker_video_mask_decoder
        sam_hq_mask_decoder sam_mask_decoder"""
    ),
    "streaming:read": _names(
        """mimi mimi_decoder mimi_encoder moonshine_streaming_encoder nemotron_asr_streaming_encoder
        pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder
        pocket_tts_audio_tokenizer_encoder voxtral_realtime_encoder"""
    ),
    "stages:read": _names(
        """clap_audio_model cvt dinat donut-swin florence_vision glpn hiera levit maskformer-swin
        mobilevit pvt pvt_v2 sam2_hiera_det_model segformer swin swin2sr swinv2"""
    ),
    "pairs:read": _names(
        """canary canary_decoder cohere_asr dia dia_decoder encoder-decoder moonshine_streaming
        musicgen musicgen_decoder musicgen_melody musicgen_melody_decoder nougat pix2struct
        pix2struct_text_model rag speech-encoder-decoder t5gemma t5gemma2 vision-encoder-decoder"""
    ),
    "parts:read": _names(
        """bark chmv2 clvp deepseek_ocr2_vision depth_anything depth_pro edgetam edgetam_video
        edgetam_vision_model esmfold2 fastspeech2_conformer_with_hifigan granite_speech5_ctc
        higgs_audio_v2_tokenizer lasr_ctc nemotron3_5_asr nemotron3_5_transcribe_audio
        nemotron3_diarization nemotron_asr_streaming parakeet_ctc parakeet_rnnt parakeet_tdt
        pp_ocrv5_mobile_det pp_ocrv5_server_det pp_ocrv6_medium_det pp_ocrv6_small_det
        pp_ocrv6_tiny_rec prompt_depth_anything qwen2_5_omni_token2wav sam sam2 sam2_video
        sam2_vision_model sam3 sam3_lite_text sam3_tracker sam3_tracker_video sam3_video
        sam3_vision_model sam_hq slanet slanext tipsv2_dpt unlimited_ocr_vision upernet uvdoc
        vitmatte vitpose xcodec zoedepth"""
    ),
    "parts:with_own": _names("pp_ocrv5_mobile_rec pp_ocrv5_server_rec pp_ocrv6_small_rec"),
    "unreadable:no_layers": _names(
        """align_vision_model bit convnext convnextv2 dac dinov3_convnext edgetam_prompt_encoder
        edgetam_video_prompt_encoder efficientnet encodec fastspeech2_conformer_hifigan
        flava_image_codebook fnet focalnet gemma3n_vision gemma4_unified_audio
        gemma4_unified_vision hgnet_v2 inkling_audio mobilenet_v1 mobilenet_v2 muse_spark_audio
        poolformer pp_lcnet pp_lcnet_v3 pp_lcnet_v4 qwen2_5_omni_bigvgan regnet resnet
        rt_detr_resnet sam2_prompt_encoder sam2_video_prompt_encoder sam3_tracker_prompt_encoder
        sam3_tracker_video_prompt_encoder sam_hq_prompt_encoder sam_prompt_encoder sapiens2_head
        speecht5_hifigan superpoint textnet timm_backbone timm_wrapper univnet uvdoc_backbone
        vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder
        vibevoice_acoustic_tokenizer_encoder vibevoice_diffusion"""
    ),
    "unreadable:other_mathematics": _names(
        """autoformer chameleon_vqgan emu3_vqgan glm_image_vqmodel informer janus_vqgan
        mobilevitv2 mra nystromformer reformer swiftformer yoso"""
    ),
    "unreadable:patch_mixer": _names("patchtsmixer"),
}
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
    "_vision",
    "_vision_encoder",
    "_vision_model",
    "_vit",
    "_vit_model",
)
# names of sizes that carry the prefix of their stack
_ENCODER_SIZES = ("encoder_layers", "num_encoder_layers", "encoder_num_hidden_layers")
_DECODER_SIZES = ("decoder_layers", "num_decoder_layers", "decoder_num_hidden_layers")


def generic_home(config: Config) -> str | None:
    """Where a type that no table lists is read, if its keys say that it is no plain decoder."""
    text = config.text
    if has_two_stacks(text):
        return "encdec:read"
    if staged(text):
        return "stages:read"
    if is_encoder(text):
        return "encoders:read"
    return None


def has_two_stacks(keys: Keys) -> bool:
    """True where the sizes of two stacks stand side by side, or a flag says that there are two."""
    names = keys.data
    both = any(n in names for n in _ENCODER_SIZES) and any(n in names for n in _DECODER_SIZES)
    return both or ("d_kv" in names and keys.is_true("is_encoder_decoder"))


def staged(keys: Keys) -> bool:
    """True where depth and heads come as lists, one entry for each stage of a backbone."""
    depths, heads = keys.data.get("depths"), keys.data.get("num_heads")
    return isinstance(depths, list) and isinstance(
        heads or keys.data.get("num_attention_heads"), list
    )


def is_encoder(keys: Keys) -> bool:
    kind = keys.model_type or ""
    return (kind.endswith(ENCODER_ENDINGS) and not _talks(keys)) or looks_like_vision(keys)


def _talks(keys: Keys) -> bool:
    """True where the keys are those of a generating model, whatever its name ends in."""
    causal = keys.model_type == "blt_local_encoder"
    return causal or ("vocab_size" in keys.data and keys.is_true("use_cache"))


def looks_like_vision(keys: Keys) -> bool:
    """True for an object about patches of an image that has no vocabulary."""
    seen = sum(name in keys.data for name in ("image_size", "patch_size", "num_channels"))
    return seen >= 2 and "vocab_size" not in keys.data
