"""The checker is strict: what is wrong, unwritten or out of bounds does not pass."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from attnctl.ops.compare import GUARD, compare, digest, guarded, overrun


def triple(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    exact = torch.randn(64, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return exact, exact.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_reference_in_the_same_precision_passes(dtype: torch.dtype) -> None:
    """Rounding alone is inside the budget, in every precision."""
    exact, rounded = triple(dtype)
    found = compare(rounded, exact, rounded)
    assert found.verdict == "pass"
    assert found.ratio < 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_percent_off_is_wrong_in_every_precision(dtype: torch.dtype) -> None:
    """A kernel that loses 2 % is caught where a fixed tolerance of bf16 would let it through."""
    exact, rounded = triple(dtype)
    found = compare((exact * 1.02).to(dtype), exact, rounded)
    assert found.verdict == "wrong"
    assert found.ratio > 1


def test_one_unwritten_element_is_named() -> None:
    """NaN anywhere is not written, whatever the mean error."""
    exact, rounded = triple(torch.float32)
    rounded[5, 3] = torch.nan
    found = compare(rounded, exact, exact.float())
    assert found.verdict == "unwritten"
    assert "[5, 3]" in found.detail


def test_a_write_past_either_end_is_seen() -> None:
    """Guards at both ends of the buffer catch one stray element."""
    inside, buffer = guarded((4, 8), torch.float32, "cpu")
    inside.zero_()
    assert overrun(buffer) == ""
    buffer[GUARD - 1] = 0.0
    assert "before" in overrun(buffer)
    buffer[GUARD - 1] = torch.nan
    buffer[GUARD + 32] = 1.0
    assert "after" in overrun(buffer)


def test_empty_outputs_pass() -> None:
    """No tokens, nothing to be wrong."""
    none = torch.zeros(0, 8)
    assert compare(none, none.double(), none).verdict == "pass"


def test_a_digest_needs_no_numpy() -> None:
    """It names the bits as they lie in order, and torch without NumPy has no other way to them."""
    value = torch.arange(6, dtype=torch.bfloat16).view(2, 3).t()
    text = (
        "import sys; sys.modules['numpy'] = None; import torch;"
        "from attnctl.ops.compare import digest;"
        "print(digest(torch.arange(6, dtype=torch.bfloat16).view(2, 3).t()))"
    )
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == digest(value) == digest(value.contiguous())
    assert digest(value) != digest(value.t())
    assert digest(value[:0]) == digest(value.float()[:0])
