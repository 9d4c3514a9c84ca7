"""States: shapes per kind under tensor parallelism and speculation, dtypes and bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnctl.caches.states import state_bytes, state_shapes, state_tensors
from attnctl.exits import InputError
from attnctl.model.spec import State

MAMBA1 = State(type="mamba1", inner=1024, state_size=16, conv_kernel=4)
MAMBA2 = State(
    type="mamba2", inner=2048, n_groups=4, state_size=64, num_heads=32, head_dim=64, conv_kernel=4
)
GDN = State(type="gdn", num_k_heads=8, num_v_heads=16, head_k_dim=128, head_v_dim=64, conv_kernel=4)
KDA = State(type="kda", num_heads=8, head_dim=64, conv_kernel=4)
SHORT = State(type="short_conv", conv_state=(512, 2))
LINEAR = State(type="lightning", num_heads=16, head_dim=96)
ALL = [MAMBA1, MAMBA2, GDN, KDA, SHORT, LINEAR]


def shapes(state: State, tp: int = 1, num_spec: int = 0) -> dict[str, tuple[int, ...]]:
    return dict(state_shapes(state, tp, num_spec))


def test_each_kind_has_its_own_shapes() -> None:
    """Convolution rows come first, V stands before K in the delta rule, linear keeps one tensor."""
    assert shapes(MAMBA1) == {"conv": (3, 1024), "ssm": (1024, 16)}
    assert shapes(MAMBA2) == {"conv": (3, 2048 + 2 * 4 * 64), "ssm": (32, 64, 64)}
    assert shapes(GDN) == {"conv": (3, 2 * 8 * 128 + 16 * 64), "ssm": (16, 64, 128)}
    assert shapes(KDA) == {"conv": (3, 3 * 8 * 64), "ssm": (8, 64, 64)}
    assert shapes(SHORT) == {"conv": (2, 512)}
    assert shapes(LINEAR) == {"ssm": (16, 96, 96)}


def test_groups_that_do_not_divide_are_replicated() -> None:
    """Four groups on eight ranks become eight, one for each rank."""
    assert shapes(MAMBA2, tp=8)["conv"] == (3, (2048 + 2 * 8 * 64) // 8)


def test_only_the_linear_state_rounds_down() -> None:
    """Three ranks do not divide heads: linear attention floors, the delta rule refuses."""
    assert shapes(LINEAR, tp=3) == {"ssm": (5, 96, 96)}
    with pytest.raises(InputError, match="--tp 3"):
        shapes(GDN, tp=3)


@pytest.mark.parametrize("state", ALL, ids=lambda s: s.type)
@given(num_spec=st.integers(0, 8))
def test_speculation_adds_convolution_rows_and_nothing_else(state: State, num_spec: int) -> None:
    """Every speculative token keeps one more row, except in Mamba 1."""
    plain, more = shapes(state), shapes(state, num_spec=num_spec)
    assert plain.get("ssm") == more.get("ssm")
    if "conv" in plain:
        extra = 0 if state.type == "mamba1" else num_spec
        assert more["conv"] == (plain["conv"][0] + extra, plain["conv"][1])


@pytest.mark.parametrize("state", [MAMBA1, GDN, KDA, SHORT, LINEAR], ids=lambda s: s.type)
@given(tp=st.sampled_from([1, 2, 4, 8]))
def test_ranks_share_a_state_without_loss(state: State, tp: int) -> None:
    """All ranks together keep exactly what one rank would."""
    whole = state_bytes(state_tensors(state, dtype="bfloat16"))
    assert tp * state_bytes(state_tensors(state, dtype="bfloat16", tp=tp)) == whole


def test_dtypes_follow_the_engine_s_defaults() -> None:
    """The recurrence follows the convolution, except in KDA (float32) and linear (one tensor)."""
    names = {s.type: [t.dtype for t in state_tensors(s, dtype="bfloat16")] for s in ALL}
    assert names["gdn"] == ["bfloat16", "bfloat16"]
    assert names["kda"] == ["bfloat16", "float32"]
    assert names["lightning"] == ["bfloat16"]
    wide = state_tensors(GDN, dtype="bfloat16", ssm_dtype="float32")
    assert [t.dtype for t in wide] == ["bfloat16", "float32"]
    assert [t.size_bytes for t in wide] == [3 * 3072 * 2, 16 * 64 * 128 * 4]
    linear = state_tensors(LINEAR, dtype="bfloat16", ssm_dtype="float32")
    assert [t.dtype for t in linear] == ["bfloat16"]


def test_what_is_not_known_is_refused_in_one_sentence() -> None:
    """A state that nobody keeps, a width that is not given, a dtype without a size."""
    with pytest.raises(InputError, match="rwkv5"):
        state_shapes(State(type="rwkv5"))
    with pytest.raises(InputError, match="heads is not given"):
        state_shapes(State(type="linear", head_dim=64))
    with pytest.raises(InputError, match="convolution is not given"):
        state_shapes(State(type="mamba1", inner=8, state_size=2))
    with pytest.raises(InputError, match="complex64"):
        state_bytes(state_tensors(KDA, dtype="complex64"))
