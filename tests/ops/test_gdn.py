"""The gated delta rule against figures worked out apart from it."""

from __future__ import annotations

import msgspec
import pytest
import torch

from attnctl.ops.gdn import Gdn, gdn
from attnctl.ops.states import take
from tests.ops.state_batches import OPS, feed, generator_of, make_gdn, packed
from tests.ops.test_paged_reference import fill


def published() -> Gdn:
    """Five tokens of one head, width 16, unit keys and queries."""
    q, k = fill((5, 16), 7), fill((5, 16), 17)
    return Gdn(
        q=(q / q.norm(dim=-1, keepdim=True))[:, None],
        k=(k / k.norm(dim=-1, keepdim=True))[:, None],
        v=fill((5, 16), 27)[:, None],
        g=torch.tensor([[-0.1], [-0.15], [-0.2], [-0.25], [-0.3]], dtype=torch.float64),
        beta=torch.tensor([[0.3], [0.4], [0.5], [0.6], [0.7]], dtype=torch.float64),
        scale=16**-0.5,
    )


@pytest.mark.parametrize(
    ("pieces", "chunk"), [([5], 1), ([3, 2], 1), ([1] * 5, 1), ([5], 64), ([3, 2], 64)]
)
def test_five_tokens_give_the_published_output_and_state(pieces: list[int], chunk: int) -> None:
    """One pass, two pieces, single steps and a chunk with a tail all give the same figures."""
    op = OPS["gdn"]._replace(state=(1, 16, 16))
    out, state = feed(op, published(), pieces, chunk=chunk)
    want = torch.tensor([0.019449, 0.128652, 0.177349, 0.142635], dtype=torch.float64)
    torch.testing.assert_close(out[4, 0, :4], want, atol=1e-6, rtol=0)
    want = torch.tensor([-0.153034, -0.053049, 0.071886, 0.163012], dtype=torch.float64)
    # the figures are of a state with K before V
    torch.testing.assert_close(state[0, :4, 0], want, atol=1e-6, rtol=0)
    assert abs(state.sum().item() + 0.696815) < 1e-6


def test_a_first_token_in_a_poisoned_slot_starts_from_zero() -> None:
    """Length one is still a first chunk; reading the slot would give other figures."""
    inputs = take(published(), slice(0, 1))
    fresh, leak = (
        gdn(inputs, torch.full((1, 1, 16, 16), 2.0).double(), packed([1], [[0]], [known]))
        for known in (False, True)
    )
    want = torch.tensor([-0.016855, 0.025692, 0.056155], dtype=torch.float64)
    torch.testing.assert_close(fresh[0, 0, :3], want, atol=1e-6, rtol=0)
    want = torch.tensor([-0.128482, -0.085935, -0.055472], dtype=torch.float64)
    torch.testing.assert_close(leak[0, 0, :3], want, atol=1e-6, rtol=0)


def test_norm_and_gate_inside_are_those_outside() -> None:
    """l2norm and the gate from a_log and dt_bias, against inputs prepared by hand."""
    inputs = OPS["gdn with its gate"].make(6, generator_of(1))
    assert inputs.a_log is not None
    assert inputs.dt_bias is not None
    rate = -torch.exp(inputs.a_log) * torch.log1p(torch.exp(inputs.g + inputs.dt_bias))
    by_hand = msgspec.structs.replace(
        inputs,
        q=inputs.q / torch.sqrt((inputs.q**2).sum(-1, keepdim=True) + 1e-6),
        k=inputs.k / torch.sqrt((inputs.k**2).sum(-1, keepdim=True) + 1e-6),
        g=rate, l2norm=False, a_log=None, dt_bias=None,
    )  # fmt: skip
    for found, wanted in zip(
        feed(OPS["gdn"], inputs, [6]), feed(OPS["gdn"], by_hand, [6]), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_a_channel_gate_of_equal_channels_is_a_head_gate() -> None:
    """KDA's decay, the same in every channel, is the gated delta rule."""
    inputs = make_gdn(6, generator_of(2))
    wide = msgspec.structs.replace(inputs, g=inputs.g[:, :, None].expand(-1, -1, 8))
    for found, wanted in zip(
        feed(OPS["gdn"], wide, [6]), feed(OPS["gdn"], inputs, [6]), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_a_full_write_is_read_back() -> None:
    """With strength 1 and a unit key, asking for the key gives its value, whatever was there."""
    inputs = make_gdn(1, generator_of(3))
    key = inputs.k / inputs.k.norm(dim=-1, keepdim=True)
    ones = torch.ones_like(inputs.beta)
    written = msgspec.structs.replace(inputs, q=key, k=key, beta=ones, scale=1.0, l2norm=False)
    start = torch.randn(4, 6, 8, generator=generator_of(4), dtype=torch.float64)
    out, _ = feed(OPS["gdn"], written, [1], start)
    torch.testing.assert_close(out, inputs.v)
