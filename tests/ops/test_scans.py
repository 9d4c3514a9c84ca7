"""Mamba 1, Mamba 2 and lightning attention against closed forms."""

from __future__ import annotations

import msgspec
import torch

from tests.ops.state_batches import OPS, feed, generator_of, make_linear, make_mamba1, make_mamba2


def test_mamba1_is_its_unrolled_sum() -> None:
    """y at the last token as a sum over all earlier ones, each decayed by the steps between."""
    inputs = make_mamba1(7, generator_of(1))
    out, state = feed(OPS["mamba1"], inputs, [7])
    assert inputs.dt_bias is not None
    assert inputs.d is not None
    assert inputs.z is not None
    dt = torch.log1p(torch.exp(inputs.dt + inputs.dt_bias))
    total = torch.zeros(6, 4, dtype=torch.float64)
    for j in range(7):
        decay = torch.exp(inputs.a * dt[j + 1 :].sum(0)[:, None])
        total += decay * (dt[j] * inputs.x[j])[:, None] * inputs.b[j]
    torch.testing.assert_close(state, total)
    y = (total * inputs.c[6]).sum(1) + inputs.d * inputs.x[6]
    torch.testing.assert_close(out[6], y * inputs.z[6] * torch.sigmoid(inputs.z[6]))


def test_mamba2_is_mamba1_with_shared_steps() -> None:
    """One group, one step per head: each head's rows are channels of a selective scan."""
    two = msgspec.structs.replace(
        make_mamba2(7, generator_of(2)), dt_limit=(0.0, float("inf")),
        b=torch.randn(7, 1, 5, dtype=torch.float64, generator=generator_of(3)),
        c=torch.randn(7, 1, 5, dtype=torch.float64, generator=generator_of(4)),
    )  # fmt: skip
    one = msgspec.structs.replace(
        make_mamba1(7, generator_of(5)),
        x=two.x.flatten(1), z=None if two.z is None else two.z.flatten(1),
        dt=two.dt.repeat_interleave(6, 1), b=two.b[:, 0], c=two.c[:, 0],
        a=two.a.repeat_interleave(6)[:, None].expand(24, 5),
        d=None if two.d is None else two.d.repeat_interleave(6),
        dt_bias=None if two.dt_bias is None else two.dt_bias.repeat_interleave(6),
    )  # fmt: skip
    wide = OPS["mamba1"]._replace(state=(24, 5))
    found, wanted = feed(OPS["mamba2"], two, [7]), feed(wide, one, [7])
    torch.testing.assert_close(found[0].flatten(1), wanted[0])
    torch.testing.assert_close(found[1].flatten(0, 1), wanted[1])


def test_mamba2_keeps_its_step_within_the_limits() -> None:
    """A step beyond either limit acts as the limit."""
    inputs = msgspec.structs.replace(
        make_mamba2(3, generator_of(6)), softplus=False, dt_bias=None, dt_limit=(0.1, 0.5)
    )
    steps = torch.tensor([[-3.0], [0.3], [9.0]], dtype=torch.float64).expand(3, 4)
    inside = torch.tensor([[0.1], [0.3], [0.5]], dtype=torch.float64).expand(3, 4)
    found = feed(OPS["mamba2"], msgspec.structs.replace(inputs, dt=steps), [3])
    free = msgspec.structs.replace(inputs, dt=inside, dt_limit=(0.0, 99.0))
    for one, other in zip(found, feed(OPS["mamba2"], free, [3]), strict=True):
        torch.testing.assert_close(one, other)


def test_a_skip_per_channel_adds_that_channel() -> None:
    """D of shape [H, Dv] beside D of shape [H]."""
    inputs = msgspec.structs.replace(make_mamba2(3, generator_of(7)), z=None, d=None)
    wide = torch.randn(4, 6, dtype=torch.float64, generator=generator_of(8))
    plain, _ = feed(OPS["mamba2"], inputs, [3])
    skipped, _ = feed(OPS["mamba2"], msgspec.structs.replace(inputs, d=wide), [3])
    torch.testing.assert_close(skipped - plain, wide * inputs.x)


def test_linear_attention_is_a_decayed_sum_over_earlier_tokens() -> None:
    """Scores q.k times the decay to the power of the distance, without a softmax."""
    inputs = make_linear(6, generator_of(9))
    out, state = feed(OPS["linear"], inputs, [6])
    i, j = torch.arange(6)[:, None], torch.arange(6)[None, :]
    decay = torch.exp(-inputs.slope[:, None, None] * (i - j)) * (j <= i)
    scores = torch.einsum("ihd,jhd->hij", inputs.q, inputs.k) * decay * inputs.scale
    torch.testing.assert_close(out, torch.einsum("hij,jhv->ihv", scores, inputs.v))
    final = torch.exp(-inputs.slope[:, None] * (5 - torch.arange(6)))
    torch.testing.assert_close(state, torch.einsum("hj,jhd,jhv->hdv", final, inputs.k, inputs.v))
