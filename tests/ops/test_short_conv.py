"""The short convolution against figures worked out apart from it."""

from __future__ import annotations

import msgspec
import pytest
import torch

from attnctl.exits import InputError
from attnctl.ops.short_conv import ShortConv, short_conv
from tests.ops.state_batches import OPS, feed, generator_of, make_conv, packed
from tests.ops.test_paged_reference import fill

# outputs and new states, [channels, ...], with and without a state at the start
PUBLISHED = {
    True: (
        [[0.62866, -0.086211], [1.027766, 0.56854]],
        [[0.898708, 0.656987, 0.988168], [-0.075151, 0.854599, 0.319098]],
    ),
    False: (
        [[0.478923, 0.796915], [-0.39101, 0.044483]],
        [[0.0, 0.656987, 0.988168], [0.0, 0.854599, 0.319098]],
    ),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("older", [0, 3])
def test_two_tokens_shift_a_state_of_three(known: bool, older: int) -> None:
    """Fewer tokens than width - 1 shift the state; of a longer one the last columns count."""
    inputs = ShortConv(x=fill((2, 2), 6).T, weight=fill((2, 4), 4))
    pool = torch.full((1, 3 + older, 2), 5.0, dtype=torch.float64)
    pool[0, older:] = fill((2, 3), 5).T
    out = short_conv(inputs, pool, packed([2], [[0]], [known]))
    y, state = (torch.tensor(value, dtype=torch.float64) for value in PUBLISHED[known])
    torch.testing.assert_close(out.T, y, atol=1e-6, rtol=0)
    torch.testing.assert_close(pool[0, older:].T, state, atol=1e-6, rtol=0)


@pytest.mark.parametrize("width", [2, 3, 4])
def test_a_sequence_is_what_torch_convolves(width: int) -> None:
    """Bias and SiLU too, against conv1d of the padded sequence."""
    inputs = make_conv(9, generator_of(1), width)
    op = OPS["short_conv"]._replace(state=(width - 1, 5))
    out, state = feed(op, inputs, [9])
    padded = torch.nn.functional.pad(inputs.x.T, (width - 1, 0))
    y = torch.nn.functional.conv1d(padded, inputs.weight[:, None], inputs.bias, groups=5)
    torch.testing.assert_close(out.T, torch.nn.functional.silu(y))
    assert torch.equal(state, inputs.x[-(width - 1) :])


@pytest.mark.parametrize(("width", "columns"), [(5, 4), (1, 3), (4, 2)])
def test_widths_and_states_that_do_not_fit_are_refused(width: int, columns: int) -> None:
    """Five taps, one tap, and a state shorter than width - 1."""
    inputs = make_conv(2, generator_of(2), width)
    pool = torch.zeros(1, columns, 5, dtype=torch.float64)
    with pytest.raises(InputError, match=r"short_conv: the (width|state) must"):
        short_conv(inputs, pool, packed([2], [[0]], [False]))


def test_a_state_without_room_for_drafts_is_refused() -> None:
    """Three drafts need three columns more."""
    inputs = make_conv(2, generator_of(3))
    pool = torch.zeros(1, 5, 5, dtype=torch.float64)
    with pytest.raises(InputError, match="at least 6 columns"):
        short_conv(inputs, pool, packed([2], [[0]], [False], num_spec=3))


def test_without_bias_and_activation_it_is_the_plain_sum() -> None:
    """One token in a fresh sequence meets the last tap alone."""
    inputs = msgspec.structs.replace(make_conv(1, generator_of(4)), bias=None, activation=None)
    out, _ = feed(OPS["short_conv"], inputs, [1])
    torch.testing.assert_close(out[0], inputs.weight[:, -1] * inputs.x[0])
