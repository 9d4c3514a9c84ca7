"""Whether an output is right: written everywhere, finite, and as exact as its precision allows.

The budget is not a hand-picked tolerance: an output may be no worse than twice the error of the
plain reference run in the same precision, both against float64, plus one rounding of the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from torch import Tensor

FACTOR = 2.0
GUARD = 64
"""Elements of poison that are laid before and after a guarded tensor."""

Verdict = Literal["pass", "wrong", "unwritten", "overrun", "unsteady"]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One output against the float64 reference.

    error and budget: root mean square of the difference over that of the reference (a ratio, so it
    means the same in every precision; None: nothing to compare); reference_error: the plain
    reference's own, in the output's precision; max_error: the largest difference, in the output's
    unit; digest: of the output's bits, so that two runs can be compared.
    """

    verdict: Verdict
    error: float | None = None
    reference_error: float = 0.0
    budget: float = 0.0
    max_error: float | None = None
    detail: str = ""
    digest: str = ""

    @property
    def ratio(self) -> float:
        """The error over its budget: at most 1 passes."""
        return float("inf") if self.error is None or not self.budget else self.error / self.budget


def fault(verdict: Verdict, detail: str) -> Comparison:
    """A verdict that no comparison of numbers was needed for."""
    return Comparison(verdict=verdict, detail=detail)


def compare(output: Tensor, exact: Tensor, same_precision: Tensor) -> Comparison:
    """The verdict on `output` given the reference in float64 and in the output's own precision."""
    import torch

    finite = torch.isfinite(output)
    if not bool(finite.all()):
        where = (~finite).nonzero()[0].tolist()
        count = int((~finite).sum())
        detail = f"{count} of {output.numel()} elements not written or not finite, first at {where}"
        return fault("unwritten", detail)
    error = relative_rms(output, exact)
    reference_error = relative_rms(same_precision, exact)
    budget = FACTOR * reference_error + torch.finfo(output.dtype).eps
    difference = (output.double() - exact.double()).abs()
    worst = float(difference.max()) if difference.numel() else 0.0
    good = error <= budget
    detail = "" if good else _worst_place(difference, budget, error)
    return Comparison(
        verdict="pass" if good else "wrong",
        error=error,
        reference_error=reference_error,
        budget=budget,
        max_error=worst,
        detail=detail,
        digest=digest(output),
    )


def digest(output: Tensor) -> str:
    """A short name of the output's bits."""
    import ctypes
    import hashlib

    data = output.detach().cpu().contiguous()
    # torch's own way to bytes is through NumPy, which torch does without and so does attnctl
    size = data.numel() * data.element_size()
    bits = ctypes.string_at(data.data_ptr(), size) if size else b""
    return hashlib.blake2b(bits, digest_size=8).hexdigest()


def same_again(first: Comparison, second: Comparison) -> Comparison:
    """The first run's comparison, which a second on the same inputs must match to the bit."""
    if second.verdict != "pass":
        return second
    if first.digest == second.digest:
        return first
    detail = f"two runs on the same inputs differ: {first.digest} and {second.digest}"
    return msgspec.structs.replace(first, verdict="unsteady", detail=detail)


def relative_rms(value: Tensor, exact: Tensor) -> float:
    """RMS of the difference over RMS of the reference; 0 for empty or equal tensors."""
    difference = value.double() - exact.double()
    if difference.numel() == 0:
        return 0.0
    off = float(difference.square().mean().sqrt())
    size = float(exact.double().square().mean().sqrt())
    return off if size == 0.0 else off / size


def _worst_place(difference: Tensor, budget: float, error: float) -> str:
    import torch

    place = torch.unravel_index(difference.argmax(), difference.shape)
    where = [int(index) for index in place]
    return f"error {error:.3g} over budget {budget:.3g}; worst at {where}"


def guarded(shape: tuple[int, ...], dtype: object, device: object) -> tuple[Tensor, Tensor]:
    """A NaN-filled tensor of this shape inside a NaN-filled buffer with guards at both ends."""
    import torch

    count = 1
    for size in shape:
        count *= size
    buffer = torch.full((count + 2 * GUARD,), torch.nan, dtype=dtype, device=device)
    return buffer[GUARD : GUARD + count].view(shape), buffer


def overrun(buffer: Tensor) -> str:
    """Where something wrote beyond a guarded tensor, "" where nothing did."""
    import torch

    for name, band in (("before", buffer[:GUARD]), ("after", buffer[-GUARD:])):
        written = ~torch.isnan(band)
        if bool(written.any()):
            return f"{int(written.sum())} elements written {name} the tensor"
    return ""
