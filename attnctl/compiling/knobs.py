"""Compiles every setting that tune would try, in several children at once. Imports no torch.

First every case is listed, which takes no compiler; then each launch that differs from all others
is compiled once, whatever cases, settings and backends have it in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from attnctl.compiling.knob_child import answered
from attnctl.compiling.knob_journal import Journal
from attnctl.compiling.knob_lines import (
    Answer,
    Ask,
    Failed,
    Group,
    ListAsk,
    Listed,
    Lists,
    Made,
    MakeAsk,
)
from attnctl.compiling.knob_trial import trial_of
from attnctl.compiling.todo import Todo
from attnctl.processes.side_by_side import side_by_side
from attnctl.smoke.planning import Plan
from attnctl.smoke.trials import Ready, Trial


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is: launches compiled of those listed so far, how many of them are bad.

    known: those that the journal held, which are no part of done. lists_left: cases whose launches
    are not listed yet.
    """

    done: int
    total: int
    known: int
    bad: int
    lists_left: int


def compile_knobs(
    plans: Sequence[Plan],
    timeout_s: float,
    children: int,
    ready: Callable[[Ready], None],
    *,
    journal: Journal | None = None,
    told: Callable[[Step], None] = lambda step: None,
) -> Iterator[tuple[int, Trial]]:
    """(place of the plan, trial) for every case of every plan, as they become known.

    timeout_s: of one launch. journal: what it holds is not compiled again; the rest is added.
    told: how far it is, after each answer.
    """
    for place, plan in enumerate(plans):
        yield from ((place, trial) for trial in plan.refused)
    ledger = _Ledger(plans, journal)
    todo = Todo(ledger.lists())
    streams = [answered(todo, timeout_s, ready) for _ in range(children)]
    for ask, answer in side_by_side(streams):
        if isinstance(ask, ListAsk):
            todo.listed(ledger.wanted(ask, answer))
        elif isinstance(answer, Made):
            ledger.note(answer)
        yield from ledger.ended()
        told(ledger.step)


class _Ledger:
    """What is known of each launch, and which cases wait for which."""

    def __init__(self, plans: Sequence[Plan], journal: Journal | None) -> None:
        self._journal = journal
        self._plans = {(one.backend, one.device): (at, one) for at, one in enumerate(plans)}
        self._made = dict(journal.made) if journal is not None else {}
        self._asked: set[str] = set()
        self._known: set[str] = set()
        self._done = self._bad = 0
        self._lists_left = len(self.lists())
        self._waiting: list[tuple[Group, Listed, set[str]]] = []
        self._refused: list[tuple[int, Trial]] = []

    @property
    def step(self) -> Step:
        return Step(
            done=self._done,
            total=len(self._asked),
            known=len(self._known),
            bad=self._bad,
            lists_left=self._lists_left,
        )

    def lists(self) -> list[ListAsk]:
        """Each case of each backend once, with the targets that it is compiled for."""
        targets: dict[Group, list[str]] = {}
        for (backend, target), (_, plan) in self._plans.items():
            for case in plan.runnable:
                targets.setdefault(Group(backend, case), []).append(target)
        return [ListAsk(group, tuple(names)) for group, names in targets.items()]

    def wanted(self, ask: ListAsk, answer: Ask | Answer) -> Iterator[MakeAsk]:
        """What is to be compiled of a list: nobody has it, and nobody was asked for it."""
        self._lists_left -= 1
        if isinstance(answer, Failed):
            trial = Trial(ask.group.case, answer.status, detail=answer.detail)
            self._refused += [
                (self._plans[ask.group.backend, target][0], trial) for target in ask.targets
            ]
        found = []
        for listed in answer.lists if isinstance(answer, Lists) else ():
            keys = {key for launches in listed.launches for key in launches}
            self._known |= (keys & self._made.keys()) - self._asked
            self._waiting.append((ask.group, listed, keys - self._made.keys()))
            found += [*self._new(ask.group, listed)]
        return iter(found)

    def _new(self, group: Group, listed: Listed) -> Iterator[MakeAsk]:
        for setting, launches in enumerate(listed.launches):
            for launch, key in enumerate(launches):
                if key not in self._made and key not in self._asked:
                    self._asked.add(key)
                    yield MakeAsk(group, listed.target, setting, launch, key)

    def note(self, made: Made) -> None:
        """A launch is done."""
        self._made[made.key] = made
        self._done += 1
        self._bad += bool(made.faults())
        if self._journal is not None:
            self._journal.note(made)
        for _, _, missing in self._waiting:
            missing.discard(made.key)

    def ended(self) -> Iterator[tuple[int, Trial]]:
        """The cases that wait for nothing more, each once."""
        refused, self._refused = self._refused, []
        yield from refused
        ready = [one for one in self._waiting if not one[2]]
        if not ready:
            return
        self._waiting = [one for one in self._waiting if one[2]]
        for group, listed, _ in ready:
            place, plan = self._plans[group.backend, listed.target]
            yield place, trial_of(group.case, listed, self._made, plan.most_spills_bytes or 0)
