"""The rule of tensor parallelism: what the ranks share must divide among them."""

from __future__ import annotations

from attnctl.findings import Finding, met, unmet
from attnctl.model.spec import LayerGroup, State
from attnctl.requirements.rule import Rule, Subject

STATE_COUNTS = {
    "mamba1": (("inner", "channels"),),
    "mamba2": (("num_heads", "heads of the state"),),
    "short_conv": (("inner", "channels"),),
    "linear": (("num_heads", "heads of the state"),),
    "lightning": (("num_heads", "heads of the state"),),
    "gdn": (("num_k_heads", "key heads"), ("num_v_heads", "value heads")),
    "kda": (("num_k_heads", "key heads"), ("num_heads", "heads of the state")),
}
"""Type of state -> its counts that the ranks share, each with its name in words."""

_WANTED = "counts that --tp divides; KV heads and groups may be repeated in whole copies"


def tensor_parallel() -> Rule:
    """Query heads divide among the ranks, KV heads too or in whole copies, and states likewise.

    One rank raises no question. The registry asks it of every backend.
    """
    return _TENSOR_PARALLEL


def undivided(group: LayerGroup, tp: int) -> str:
    """Return the counts of a layer that do not divide among tp ranks, in words; "" if all do."""
    return " and ".join(text for text, good in _counts(group, tp) if not good)


def _counts(group: LayerGroup, tp: int) -> list[tuple[str, bool]]:
    """(the count in words, whether it divides) of all that the ranks of this layer share."""
    if group.state is not None and group.is_ssm:
        return _state_counts(group.state, tp)
    found = []
    if group.num_heads is not None:
        found.append((f"{group.num_heads} query heads", group.num_heads % tp == 0))
    if group.num_kv_heads:
        found.append((f"{group.num_kv_heads} KV heads", _repeats(group.num_kv_heads, tp)))
    return found


def _state_counts(state: State, tp: int) -> list[tuple[str, bool]]:
    found = []
    for field, name in STATE_COUNTS.get(state.type, ()):
        count = getattr(state, field)
        if count is None and field == "inner" and state.conv_state:
            count = state.conv_state[0]
        if count is not None:
            found.append((f"{count} {name}", count % tp == 0))
    if state.type == "mamba2" and state.n_groups:
        found.append((f"{state.n_groups} groups", _repeats(state.n_groups, tp)))
    return found


def _repeats(count: int, tp: int) -> bool:
    """True where the count divides, or where every rank can hold one of whole copies."""
    return count % tp == 0 or tp % count == 0


def _check(subject: Subject) -> Finding | None:
    group, tp = subject.layer.group, subject.layer.tp
    if tp == 1:
        return None
    counts = _counts(group, tp)
    if not counts:
        return None
    bad = [text for text, good in counts if not good]
    if not bad:
        found = f"{' and '.join(text for text, _ in counts)} on {tp} ranks"
        return met("tensor_parallel", _WANTED, found, "--tp")
    fits = next(ranks for ranks in range(tp - 1, 0, -1) if not undivided(group, ranks))
    found = f"{' and '.join(bad)} on {tp} ranks"
    return unmet("tensor_parallel", _WANTED, found, "--tp", f"--tp {fits}")


# one object, so that every backend shares it
_TENSOR_PARALLEL = Rule("tensor_parallel", "layer", _check, wanted=_WANTED)
