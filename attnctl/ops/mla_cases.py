"""The cases of latent attention, without torch. Each row states only what is special."""

from __future__ import annotations

from collections.abc import Mapping

from attnctl.layer import Layer, Options, layer_of
from attnctl.model.spec import Kind, LayerGroup, Mla, ModelSpec
from attnctl.ops.case import Case, Value, make_case
from attnctl.ops.paged_cases import PHASES

OP = "mla"

DEFAULTS: dict[str, Value] = {
    "form": "absorbed",
    "queries": "1+1+1",
    "contexts": "17+5+64",
    "heads": 16,
    "lora": 512,
    "rope": 64,
    "nope": 128,
    "v": 128,
    "page": 64,
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "chunk": 0,
    "fused": False,
    "padding": 0,
}
"""form: absorbed or uncompressed. queries, contexts: tokens per sequence, joined by +. lora, rope:
columns of the cached row; nope, v: of a head's uncompressed key and value. chunk: context tokens
that the uncompressed form takes at a time, 0 for all. fused: latent and rope are strided views of
one projection. padding: rows past the last sequence, with slot -1."""


def case(**changes: Value) -> Case:
    return make_case(OP, DEFAULTS, **changes)


def case_of(op: str, params: Mapping[str, Value]) -> Case:
    """The case of a text that was pasted back. InputError on an unknown parameter."""
    return case(**params)


def layer_for(case: Case) -> Layer:
    """The demands that this case makes of a backend: what its rules are asked about."""
    return latent_layer(case, "mla")


def latent_layer(case: Case, kind: Kind, **more: object) -> Layer:
    """A layer of the case's widths; what a case does not name is DeepSeek V3's."""
    params = {**DEFAULTS, **case.params}
    lora, rope, nope, v = (int(str(params[name])) for name in ("lora", "rope", "nope", "v"))
    mla = Mla(
        kv_lora_rank=lora,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=nope,
        v_head_dim=v,
        prefill_head_size=nope + rope,
        prefill_head_size_v=v,
    )
    group = LayerGroup(
        kind=kind,
        layers=(0,),
        num_heads=int(str(params["heads"])),
        num_kv_heads=1,
        head_size=lora + rope,
        head_size_v=lora,
        mla=mla,
        **more,  # type: ignore[arg-type]
    )
    spec = ModelSpec(model_type="case", groups=(group,), dtype=str(params["dtype"]))
    kv_dtype, page = str(params["kv_cache_dtype"]), int(str(params["page"]))
    return layer_of(spec, group, Options(kv_cache_dtype=kv_dtype, block_size=page))


FORMS = ("absorbed", "uncompressed")

# heads, lora, rope, nope, v: DeepSeek V3 on 1, 2 and 8 ranks, DeepSeek V2 Lite, MiniCPM3, Mistral
# Large 3's nope-free kin, one whose widths are no powers of two
SHAPES = (
    (128, 512, 64, 128, 128),
    (64, 512, 64, 128, 128),
    (20, 512, 64, 192, 256),
    (40, 256, 32, 64, 64),
    (8, 256, 64, 64, 128),
    (1, 512, 0, 256, 256),
    (5, 192, 32, 48, 40),
)


def cases(op: str = OP) -> tuple[Case, ...]:
    """Every case once, in a fixed order."""
    every = (*_phases(), *_shapes(), *_edges(), *_chunks(), *_storage())
    return tuple({one.text: one for one in every}.values())


def _phases() -> list[Case]:
    return [
        case(form=form, heads=heads, **phase)
        for phase in PHASES.values()
        for form, heads in (("absorbed", 16), ("uncompressed", 8))
    ]


def _shapes() -> list[Case]:
    found = []
    for heads, lora, rope, nope, v in SHAPES:
        widths = {"heads": heads, "lora": lora, "rope": rope, "nope": nope, "v": v}
        found.append(case(**widths, **PHASES["decode"]))
        # heads only repeat the work here: each has keys of its own
        widths["heads"] = min(heads, 5)
        found.append(case(form="uncompressed", **widths, **PHASES["chunked"]))
    return found


def _edges() -> list[Case]:
    """Lengths around a tile, a page and nothing, empty sequences, padded rows."""
    lengths = (1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 700)
    return [
        case(queries="0+3+0+1", contexts="0+3+0+20"),
        case(form="uncompressed", queries="0+3+0+1", contexts="0+3+7+20"),
        *(case(form=form, queries="", contexts="") for form in FORMS),
        case(queries="0+0", contexts="0+9"),
        *(case(queries="1", contexts=str(n)) for n in lengths),
        *(
            case(form="uncompressed", queries=str(n), contexts=str(n), heads=4)
            for n in (1, 15, 16, 17, 63, 64, 65, 128, 129, 193, 257)
        ),
        # prompts of one length and of many, and after a context as long as they are
        *(
            case(form="uncompressed", queries=queries, contexts=contexts, heads=4)
            for queries, contexts in (
                ("200+200", "200+200"),
                ("300+17+128", "300+17+128"),
                ("70+100", "90+140"),
            )
        ),
        case(queries="1+1", contexts="20+33", padding=2),
        case(form="uncompressed", queries="2+1", contexts="20+33", padding=3, heads=4),
        case(fused=True, **PHASES["chunked"]),
    ]


def _chunks() -> list[Case]:
    """Context uncompressed in parts: edges inside, at and beyond the context's end."""
    return [
        case(form="uncompressed", chunk=chunk, heads=4, **PHASES["chunked"])
        for chunk in (16, 33, 65, 1000)
    ]


def _storage() -> list[Case]:
    plain = [case(dtype=dtype, **PHASES["chunked"]) for dtype in ("float16", "float32")]
    plain += [
        case(form="uncompressed", dtype=dtype, heads=4, **PHASES["chunked"])
        for dtype in ("float16", "float32")
    ]
    fp8 = [
        case(form=form, kv_cache_dtype=kv, heads=8, **PHASES[phase])
        for kv in ("fp8_e4m3", "fp8_e5m2")
        for form, phase in (("absorbed", "decode"), ("uncompressed", "chunked"))
    ]
    return [*plain, *fp8, *(case(page=page, **PHASES["chunked"]) for page in (16, 32, 128))]
