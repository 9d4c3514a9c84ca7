"""Whether an output and its log-sum-exp are right together."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.ops.compare import Comparison, compare, fault


def compare_states(
    out: Tensor,
    lse: Tensor,
    exact: tuple[Tensor, Tensor],
    same_precision: tuple[Tensor, Tensor],
) -> Comparison:
    """The worse of two comparisons: of `out`, and of `lse`, float32 in natural logarithms.

    -inf must stand exactly where it belongs; elsewhere the budget is that of the precision in which
    the logits were computed, for that is what a log-sum-exp is made of.
    """
    of_out = compare(out.cpu(), exact[0], same_precision[0])
    empty = exact[1] == -torch.inf
    found = lse.cpu()
    if not torch.equal(found == -torch.inf, empty):
        return fault("wrong", "lse: -inf is not exactly where no key was seen")
    kept = ~empty
    same = same_precision[1]
    of_lse = compare(found[kept].to(same.dtype), exact[1][kept], same[kept])
    if of_lse.verdict != "pass":
        return fault("wrong", f"lse: {of_lse.detail}")
    return of_out
