"""What a decision keeps in cache, against sizes worked out by hand."""

from __future__ import annotations

import msgspec

from attnctl.costs import Cost, cost
from attnctl.decision import Decision, Pick
from attnctl.layer import Options
from attnctl.model.spec import Indexer, LayerGroup, State


def decided(group: LayerGroup, op: str, kv: str = "auto", block: int | None = 16) -> Decision:
    pick = Pick(name="X", evidence="only", why="", block_size=block)
    return Decision(
        group=group,
        op=op,
        features=(),
        dtype="bfloat16",
        kv_cache_dtype=kv,
        pick=pick,
        candidates=(),
    )


LLAMA = LayerGroup(
    kind="full", layers=tuple(range(32)), num_heads=32, num_kv_heads=8, head_size=128
)


def test_plain_attention_keeps_keys_and_values_of_every_layer() -> None:
    """8 KV heads x 128 x 2 (K and V) x 2 bytes x 32 layers: 128 KiB a token."""
    found = cost(decided(LLAMA, "paged"), Options(), max_position=131072)
    assert found.token_bytes == 2 * 8 * 128 * 2 * 32 == 131072
    assert found.block_bytes == 16 * 4096
    assert found.sequence_bytes == 131072 * 131072
    assert "128.0 KiB per token over 32 layers" in found.text()


def test_ranks_share_heads_and_fp8_halves_them() -> None:
    """Two ranks hold four KV heads each, in one byte per element."""
    found = cost(decided(LLAMA, "paged", kv="fp8"), Options(tp=2))
    assert found.token_bytes == 2 * 4 * 128 * 1 * 32


def test_a_window_bounds_what_a_long_sequence_needs() -> None:
    """Sliding layers keep at most their window."""
    sliding = msgspec.structs.replace(LLAMA, kind="sliding", window=4096)
    found = cost(decided(sliding, "paged"), Options(max_model_len=32768))
    assert found.sequence_bytes == 4096 * found.token_bytes


def test_layers_that_read_anothers_cache_keep_none() -> None:
    """Two of 32 layers share: 30 are counted."""
    shared = msgspec.structs.replace(LLAMA, kv_shared_from={30: 28, 31: 29})
    assert cost(decided(shared, "paged"), Options()).token_bytes == 30 * 4096


def test_latent_rows_do_not_split_and_the_indexer_adds_its_own() -> None:
    """576 x 2 bytes on every rank, plus 132 bytes in the layers that run the indexer."""
    group = LayerGroup(
        kind="mla_sparse",
        layers=(0, 1, 2, 3),
        num_heads=128,
        num_kv_heads=1,
        head_size=576,
        head_size_v=512,
        indexer=Indexer(heads=64, head_dim=128, topk=2048, layers=(0, 2)),
    )
    assert cost(decided(group, "mla_sparse"), Options(tp=8)).token_bytes == 4 * 1152 + 2 * 132
    packed = cost(decided(group, "mla_sparse", kv="fp8_ds_mla"), Options())
    assert packed.token_bytes == 4 * 656 + 2 * 132


QWEN = LayerGroup(
    kind="gdn",
    layers=tuple(range(36)),
    state=State(
        type="gdn", conv_kernel=4, num_k_heads=16, num_v_heads=32, head_k_dim=128, head_v_dim=128
    ),
)


def test_a_state_is_per_sequence_and_not_per_token() -> None:
    """Qwen3-Next: 1,097,728 bytes a layer in bfloat16, whatever the length."""
    found = cost(decided(QWEN, "gdn", block=None), Options(max_model_len=1 << 20))
    assert found.state_bytes == found.sequence_bytes == 36 * 1_097_728
    assert found.token_bytes == 0
    assert [tensor.name for tensor in found.states] == ["conv", "ssm"]


def test_what_cannot_be_sized_says_why() -> None:
    """32 value heads do not split over 3 ranks: a note, no traceback and no figure."""
    found = cost(decided(QWEN, "gdn", block=None), Options(tp=3))
    assert found.state_bytes == 0
    assert "do not divide" in found.text()


def test_encoders_keep_nothing() -> None:
    """No cache, no bytes."""
    encoder = msgspec.structs.replace(LLAMA, kind="encoder_self")
    assert cost(decided(encoder, "paged", block=None), Options()) == Cost(layers=0)
