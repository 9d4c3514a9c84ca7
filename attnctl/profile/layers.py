"""A layer again from the shape under which its timings are kept, for the rules to look at."""

from __future__ import annotations

from attnctl.layer import Layer, Options, layer_of
from attnctl.model.spec import Indexer, Kind, LayerGroup, Mla, ModelSpec
from attnctl.profile.states import state_of
from attnctl.profile.values import Shape

SOURCE = "the profile's shape"
# a feature that tells the kind of a layer -> that kind; the first that is there counts
_KINDS: tuple[tuple[str, Kind], ...] = (
    ("cross", "cross"),
    ("encoder", "encoder_self"),
    ("encoder_only", "encoder_self"),
    ("chunked", "chunked"),
    ("blocksparse", "blocksparse"),
    ("sliding_window", "sliding"),
)
_OPS: dict[str, Kind] = {
    "mla": "mla",
    "mla_sparse": "mla_sparse",
    "gdn": "gdn",
    "mamba1": "mamba1",
    "mamba2": "mamba2",
    "short_conv": "short_conv",
    "linear": "linear",
}
# DeepSeek's, of which every known model with latent attention has the same or smaller ones
_NOPE, _VALUE = 128, 128


def layer_of_shape(shape: Shape) -> Layer:
    """The layer whose shape this is, as far as the shape tells it."""
    spec = spec_of_shape(shape)
    return layer_of(spec, spec.groups[0], Options())


def spec_of_shape(shape: Shape) -> ModelSpec:
    """A model of one layer, layer 0, that has this shape."""
    kind = _kind(shape)
    features = frozenset(shape.features)
    two_sided = "two_sided_window" in features
    group = LayerGroup(
        kind=kind,
        layers=(0,),
        stack="encoder" if "encoder" in features else None,
        head_size=shape.head_size,
        head_size_v=shape.head_size_v,
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        window=None if kind == "chunked" else shape.window,
        window_right=shape.window // 2 if two_sided and shape.window else None,
        chunk=shape.window if kind == "chunked" else None,
        sinks="sinks" in features,
        softcap=50.0 if "softcap" in features else None,
        alibi="alibi" in features,
        prefix_lm="prefix_lm" in features,
        mla=_mla(shape) if shape.op in ("mla", "mla_sparse") else None,
        indexer=Indexer(heads=64, head_dim=128, topk=shape.topk) if shape.topk else None,
        state=state_of(shape),
        notes={"score_bias": True} if "score_bias" in features else {},
    )
    kv_dtype = None if shape.kv_cache_dtype == "auto" else shape.kv_cache_dtype
    return ModelSpec(
        model_type=None,
        groups=(group,),
        dtype=shape.dtype,
        dtype_source=SOURCE,
        kv_cache_dtype_from_checkpoint=kv_dtype,
        kv_cache_dtype_source=SOURCE,
    )


def _kind(shape: Shape) -> Kind:
    if shape.op == "gdn" and "kda_gate" in shape.features:
        return "kda"
    if shape.op in _OPS:
        return _OPS[shape.op]
    return next((kind for feature, kind in _KINDS if feature in shape.features), "full")


def _mla(shape: Shape) -> Mla:
    latent = shape.head_size_v or 0
    rope = (shape.head_size or 0) - latent
    return Mla(
        kv_lora_rank=latent,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=_NOPE,
        v_head_dim=_VALUE,
        prefill_head_size=_NOPE + rope,
        prefill_head_size_v=_VALUE,
    )
