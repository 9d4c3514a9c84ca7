"""Which projections of a built model count, told by the names and shapes of its parameters."""

from __future__ import annotations

from collections.abc import Iterator

from tools.zoo_built import widths


class Parameter:
    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def dim(self) -> int:
        return len(self.shape)


class Module:
    """What `widths` asks of a module of torch."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.shapes = shapes

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for name, shape in self.shapes.items():
            yield name.replace("__", "."), Parameter(*shape)


def test_three_projections_give_three_widths() -> None:
    """A matrix is [out, in]; a bias is no matrix."""
    module = Module(
        q_proj__weight=(512, 64),
        k_proj__weight=(128, 64),
        v_proj__weight=(128, 64),
        q_proj__bias=(512,),
    )
    assert widths(module) == "512/128/128"


def test_a_fused_projection_gives_one_width() -> None:
    """GPT-2 keeps its weight the other way round."""
    assert widths(Module(qkv__weight=(768, 256))) == "768"
    assert widths(Module(c_attn__weight=(256, 768))) == "768"


def test_a_projection_inside_a_wrapper_counts() -> None:
    """Gemma 4 clips what goes through its projections, Moshi picks one by codebook."""
    module = Module(q__linear__weight=(64, 8), k__linear__weight=(32, 8), v__linear__weight=(32, 8))
    assert widths(module) == "64/32/32"


def test_a_module_without_projections_counts_for_nothing() -> None:
    """A wrapper around the attention that its child does."""
    assert widths(Module(norm__weight=(64, 64))) is None
