"""Which batches Hopper's prefill kernel takes, and how it cuts their work."""

from __future__ import annotations

import pytest
import torch

from attnctl.kernels.triton.latent.prefill_call import prefill_launch
from attnctl.kernels.triton.launch import Device, Launch
from attnctl.kernels.triton.paged.call import shape_of
from attnctl.kernels.triton.paged.launches import launches
from attnctl.kernels.triton.paged.plan import knobs_for, plan
from attnctl.kernels.triton.paged.prefill_call import paged_launch
from attnctl.kernels.triton.paged.prefill_forms import (
    HALF,
    L2_BYTES,
    LONG,
    PAIR,
    TINY,
    Form,
    counts_units,
    cut_units,
    form_of,
)
from attnctl.kernels.triton.stand_in import standing_on
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata

HOPPER = Device("sm_90", 132, 232448)


def tensor(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def packed(
    width: int = 192,
    factor: float = 0.1,
    dtype: torch.dtype = torch.bfloat16,
    gpu: Device = HOPPER,
    tokens: int = 4096,
) -> Launch:
    """The launch of two sequences' uncompressed attention with 16 heads."""
    starts = tensor(3, dtype=torch.int32)
    metadata = Metadata(
        query_start_loc=starts,
        seq_lens=tensor(2, dtype=torch.int32),
        block_table=starts[None],
        slot_mapping=starts,
        max_query_len=tokens,
        max_seq_len=tokens,
    )
    query, keys = (tensor(tokens, 16, width, dtype=dtype) for _ in range(2))
    values, out = (tensor(tokens, 16, 128, dtype=dtype) for _ in range(2))
    lse = tensor(tokens, 16, dtype=torch.float32)
    return prefill_launch(query, keys, values, starts, metadata, factor, True, out, lse, gpu)


def paged(
    page: int = 16, width: int = 128, row: int = 1024, by_head: bool = False
) -> Launch | None:
    """The launch over pages of 8 KV heads, 32 query heads. row: elements of a page's row."""
    keys = tensor(64, page, row)[..., : 8 * width].unflatten(2, (8, width))
    if by_head:
        keys = tensor(64, 8, page, width).transpose(1, 2)
    query, out = tensor(512, 32, width), tensor(512, 32, width)
    table = tensor(2, 32, dtype=torch.int32)
    starts, lengths = tensor(3, dtype=torch.int32), tensor(2, dtype=torch.int32)
    tensors = (query, keys, keys, out, table, starts, lengths)
    return paged_launch(tensors, 0.1, 1.0, True, (512, 512), HOPPER)


def test_packed_rows_of_128_and_192_columns_in_16_bits_are_taken() -> None:
    """Each other batch differs in one thing from those, and is the portable kernel's."""
    own = "prefill_hopper_kernel"
    assert packed().kernel.__name__ == own
    assert packed(width=128).kernel.__name__ == own
    assert packed(dtype=torch.float16).kernel.__name__ == own
    for other in (
        packed(width=160),
        packed(factor=-0.1),
        packed(dtype=torch.float32),
        packed(gpu=Device("sm_100", 148, 232448)),
    ):
        assert other.kernel.__name__ == "mla_prefill_kernel"


@pytest.mark.parametrize("page", [16, 32, 64, 128, 256])
def test_pages_that_make_tiles_are_taken_in_every_layout_of_a_cache(page: int) -> None:
    """Heads side by side or one below the other, with and without room between rows."""
    for launch in (paged(page), paged(page, by_head=True), paged(page, row=2048)):
        assert launch is not None
        assert launch.constants["PAGE"] == page
        assert launch.constants["RATIO"] == 4


def test_pages_that_make_no_tiles_and_other_widths_are_not_taken() -> None:
    """Pages of 8, 48 and 192 keys, 64 columns, rows that no box can step over."""
    assert paged(8) is None
    assert paged(48) is None
    assert paged(192) is None
    assert paged(width=64) is None
    assert paged(row=1028) is None


def test_programs_are_as_many_as_run_at_once_and_no_more_than_there_are_units() -> None:
    """132 multiprocessors; 64 tokens of two sequences make at most 2 tiles a head."""
    assert packed().grid == (132,)
    assert packed(tokens=64).grid == (32,)


@pytest.mark.parametrize("ratio", [1, 4])
@pytest.mark.parametrize("head_bytes", [2**18, 3 * 2**20, 2**30])
def test_heads_run_side_by_side_while_their_keys_fit_the_l2(ratio: int, head_bytes: int) -> None:
    """As many as fit, at least those that share keys, and a divisor of all."""
    cut = cut_units(4096, 3, 4096, 64, ratio, head_bytes)
    assert (cut.tiles_a_head, cut.tiles_a_sequence, cut.units) == (35, 0, 35 * 64)
    assert 64 % cut.together == 0
    assert cut.together >= ratio
    side = cut.together // ratio * head_bytes
    assert side <= L2_BYTES or cut.together == ratio
    assert cut.together == 64 or 2 * side > L2_BYTES
    assert cut_units(4096, 3, 4096, 64, 1, 1, HALF).together == 16


@pytest.mark.parametrize(
    ("tokens", "sequences", "longest", "each", "tiles"),
    [
        (8192, 8, 1024, 8, 64),
        (8192, 64, 128, 1, 64),
        (2100, 3, 700, 6, 18),
        # the others are short, one of them is long: as many each would be 40
        (1400, 5, 1000, 0, 15),
        (0, 2, 0, 1, 2),
    ],
)
def test_sequences_of_one_length_have_no_empty_tiles(
    tokens: int, sequences: int, longest: int, each: int, tiles: int
) -> None:
    """As many for each as the longest has, where that is no more than room for any lengths."""
    cut = cut_units(tokens, sequences, longest, 16, 1, 2**20)
    assert (cut.tiles_a_sequence, cut.tiles_a_head, cut.units) == (each, tiles, tiles * 16)


@pytest.mark.parametrize(
    ("sequences", "length", "form"),
    [
        (64, 17, TINY),
        (64, 32, TINY),
        (8, 33, HALF),
        (24, 64, HALF),
        (24, 65, PAIR),
        (8, 128, HALF),
        (9, 128, PAIR),
        (24, 129, HALF),
        (24, 193, PAIR),
        (24, 256, PAIR),
        (24, 300, HALF),
        (24, 384, PAIR),
        (16, 512, LONG),
        (16, 513, HALF),
        (8, 1024, LONG),
    ],
)
def test_short_prompts_have_tiles_that_leave_little_of_them_empty(
    sequences: int, length: int, form: Form
) -> None:
    """Rows in 64s and 128s, tiles of 32, 64 and 128 keys; those of 16 heads at once are halves."""
    tokens = sequences * length
    assert form_of(tokens, tokens, sequences, length, 16, 132) is form


def test_prompts_of_many_lengths_and_those_with_a_context_have_a_form_too() -> None:
    """One long one among short ones, and queries of which each has many keys before it."""
    assert form_of(3800, 3800, 24, 300, 128, 132) is HALF
    assert form_of(24000, 24000, 24, 3000, 128, 132) is LONG
    assert form_of(24 * 64, 24 * 4096, 24, 64, 128, 132) is LONG


@pytest.mark.parametrize("form", [LONG, PAIR, HALF, TINY])
def test_programs_of_a_form_fit_a_multiprocessor_side_by_side(form: Form) -> None:
    """228 KiB of shared memory, 1 of them for each program, and 65536 registers."""
    rows = form.rows * form.queries * 192 + form.keys * form.depth * (192 + 128)
    # barriers, and what the compiler needs to turn rows
    assert form.programs * (2 * rows + 4096 + 1024) <= 233472
    assert form.programs * form.groups <= 2


@pytest.mark.parametrize(
    ("sequences", "length", "form", "counted"),
    [
        (1, 200, PAIR, False),
        (24, 200, PAIR, False),
        (24, 300, HALF, True),
        (64, 64, HALF, False),
        (8, 128, PAIR, False),
        (24, 128, PAIR, True),
        (24, 100, PAIR, False),
        (2, 128, LONG, True),
        (1, 128, LONG, False),
    ],
)
def test_units_that_are_alike_need_no_counter(
    sequences: int, length: int, form: Form, counted: bool
) -> None:
    """One or two to a sequence; nor do any where no program has more than one."""
    cut = cut_units(sequences * length, sequences, length, 128, 1, 2**16, form)
    assert counts_units(cut, form, length, 132 * form.programs) is counted


def through_the_call(**changes: object) -> Launch:
    """What paged attention launches for a prompt of 512 tokens with 32 heads over 8."""
    params = Paged(**{"scale": 0.5, **changes})
    keys = tensor(64, 16, 8, 128)
    query, out = tensor(512, 32, 128), tensor(512, 32, 128)
    starts, lengths = tensor(3, dtype=torch.int32), tensor(2, dtype=torch.int32)
    shape = shape_of(query, keys, keys, lengths, 300, 512)
    tensors = (query, keys, keys, out, tensor(2, 32, dtype=torch.int32), starts, lengths)
    with standing_on(HOPPER):
        chosen = plan(shape, HOPPER, knobs_for("sm_90"))
        (launch,) = launches(tensors, params, shape, chosen)
    return launch


def test_the_call_hands_on_scales_and_whether_a_mask_is_causal() -> None:
    """The factor goes into a power of two: scale x K's scale x log2(e)."""
    for causal in (True, False):
        launch = through_the_call(k_scale=3.0, v_scale=0.25, causal=causal)
        given = dict(zip(launch.kernel.arg_names, launch.arguments, strict=False))
        assert launch.kernel.__name__ == "prefill_hopper_kernel"
        assert given["factor"] == pytest.approx(1.5 * 1.4426950408889634)
        assert given["v_scale"] == 0.25
        assert (given["sequences"], given["tiles_a_head"], given["total"]) == (2, 6, 6 * 32)
        assert (given["TABLE"].shape, given["KEY_STARTS"].shape) == ((2, 32), (2,))
        assert launch.constants["CAUSAL"] is causal


def test_features_that_the_kernel_has_no_code_for_go_to_the_portable_one() -> None:
    """A window, two-sided or not, chunks, a cap, sinks, slopes and bidirectional ranges."""
    heads = tensor(32, dtype=torch.float32)
    for feature in (
        {"window": 64},
        {"causal": False, "window": 64, "window_right": 64},
        {"chunk": 128},
        {"softcap": 30.0},
        {"sinks": heads},
        {"alibi_slopes": heads},
        {"prefix_ranges": tensor(2, 1, 2, dtype=torch.int32)},
        {"scale": -0.5},
    ):
        assert through_the_call(**feature).kernel.__name__ == "prefill_kernel"
