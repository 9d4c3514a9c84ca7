"""What a decision keeps in cache, against sizes worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from attnctl.caches.costs import Cost, cost
from attnctl.decision import Decision, Pick
from attnctl.layer import Options
from attnctl.model.encoder_length import encoder_length_of
from attnctl.model.keys import Keys, Ledger
from attnctl.model.spec import Indexer, LayerGroup, State
from attnctl.render.costs import cost_text


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
    assert "128 KiB per token over 32 layers" in cost_text(found)


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
    assert "do not divide" in cost_text(found)


def test_encoders_keep_nothing() -> None:
    """No cache, no bytes."""
    encoder = msgspec.structs.replace(LLAMA, kind="encoder_self")
    assert cost(decided(encoder, "paged", block=None), Options()) == Cost(layers=0)


CROSS = msgspec.structs.replace(LLAMA, kind="cross", num_kv_heads=20, num_heads=20, head_size=64)


def test_cross_attention_keeps_the_encoders_tokens_whatever_the_decoders_length() -> None:
    """Whisper: 1500 states of 20 heads x 64 x 2 (K and V) x 2 bytes in 32 layers."""
    for options in (Options(), Options(max_model_len=7)):
        found = cost(decided(CROSS, "paged"), options, 448, 1500)
        assert found.sequence_tokens == 1500
        assert found.sequence_bytes == 1500 * 20 * 64 * 2 * 2 * 32
        assert "a sequence of 1,500 tokens of the encoder" in cost_text(found)


def test_an_encoder_of_unknown_length_gives_no_figure_for_a_sequence() -> None:
    """Neither --max-model-len nor the decoder's limit stands in for it."""
    found = cost(decided(CROSS, "paged"), Options(max_model_len=4096), max_position=131072)
    assert (found.sequence_tokens, found.sequence_bytes) == (None, None)
    assert "not known, for the encoder's length is not" in cost_text(found)


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"model_type": "whisper", "max_source_positions": 1500}, 1500),
        ({"model_type": "whisper"}, None),
        ({"model_type": "bart", "max_position_embeddings": 1024}, 1024),
        ({"model_type": "led", "max_encoder_position_embeddings": 16384}, 16384),
        ({"model_type": "t5", "n_positions": 512}, None),  # relative positions bound nothing
        ({"model_type": "mllama_text_model", "max_position_embeddings": 131072}, None),
    ],
)
def test_the_encoders_length_is_read_where_the_file_bounds_it(
    config: dict[str, Any], length: int | None
) -> None:
    """A limit of the decoder is none of the encoder."""
    keys = Keys(config, "", Ledger("config.json"), config["model_type"])
    found = encoder_length_of(keys)
    assert (found.value if found else None) == length


def test_a_cache_of_both_stacks_gives_no_figure_for_a_sequence() -> None:
    """Self- and cross-attention in one operation: the encoder's share is not known."""
    merged = msgspec.structs.replace(LLAMA, notes={"merged_cross": "in one operation"})
    found = cost(decided(merged, "paged"), Options(), max_position=4096)
    assert (found.token_bytes, found.sequence_bytes) == (131072, None)


def test_compressed_contexts_are_not_guessed_and_a_shared_row_is_counted_once() -> None:
    """DeepSeek V4: 512 x 2 bytes in window layers; where context is compressed, no figure."""
    window = LayerGroup(
        kind="sliding",
        layers=(0, 1),
        num_heads=64,
        num_kv_heads=1,
        head_size=512,
        window=128,
        notes={"compress_ratio": 0, "k_equals_v": True},
    )
    assert cost(decided(window, "paged"), Options()).token_bytes == 2 * 512 * 2
    packed = msgspec.structs.replace(window, kind="mla", notes={"compress_ratio": 128})
    found = cost(decided(packed, "mla"), Options(max_model_len=1 << 20))
    assert (found.token_bytes, found.sequence_bytes) == (0, None)
    assert "128 tokens" in cost_text(found)


def test_a_group_that_only_reads_anothers_cache_shows_no_pages() -> None:
    """Gemma 3n's last layers keep nothing: no pages, no bytes."""
    readers = msgspec.structs.replace(LLAMA, layers=(30, 31), kv_shared_from={30: 28, 31: 29})
    found = cost(decided(readers, "paged"), Options(), max_position=4096)
    assert found == Cost(layers=0)
    assert cost_text(found) == "nothing is kept"


def test_one_layer_is_not_called_layers() -> None:
    """A group may hold a single one."""
    assert cost_text(Cost(layers=1, token_bytes=1024)) == "1 KiB per token over 1 layer"
    assert cost_text(Cost(layers=2, state_bytes=1024)) == "1 KiB per sequence over 2 layers"
