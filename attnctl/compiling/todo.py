"""What children have still to list and to compile. Their threads take from it, one gives to it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from threading import Condition

from attnctl.compiling.knob_lines import Ask, Group, ListAsk, MakeAsk


class Todo:
    """Lists come first, so that it is soon known how much there is to compile."""

    def __init__(self, lists: Iterable[ListAsk]) -> None:
        self._lists = deque(lists)
        self._listing = 0
        self._groups: dict[Group, deque[MakeAsk]] = {}
        self._at: Counter[Group] = Counter()
        self._changed = Condition()

    def next(self, group: Group) -> Ask | None:
        """What a child does next; None: there is nothing, and nothing more will come.

        group: what it did last, which it goes on with while there is any. Waits while another child
        lists what may be compiled next.
        """
        with self._changed:
            self._at[group] -= 1
            while True:
                if self._lists:
                    self._listing += 1
                    return self._begun(self._lists.popleft())
                if self._groups:
                    return self._begun(self._taken(group))
                if not self._listing:
                    return None
                self._changed.wait()

    def listed(self, asks: Iterable[MakeAsk]) -> None:
        """A list has come, with what is to be compiled of it."""
        with self._changed:
            self._listing -= 1
            for ask in asks:
                self._groups.setdefault(ask.group, deque()).append(ask)
            self._changed.notify_all()

    def _begun(self, ask: Ask) -> Ask:
        self._at[ask.group] += 1
        return ask

    def _taken(self, group: Group) -> MakeAsk:
        """The next of the group, or of the one with the most left for each child that is at it."""
        if group not in self._groups:
            left = self._groups
            group = max(left, key=lambda one: len(left[one]) / (1 + max(0, self._at[one])))
        asks = self._groups[group]
        ask = asks.popleft()
        if not asks:
            del self._groups[group]
        return ask
