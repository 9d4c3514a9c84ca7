"""What a child of a compilation with every knob is given to do next."""

from __future__ import annotations

from threading import Thread

from attnctl.compiling.knob_lines import Ask, Group, ListAsk, MakeAsk
from attnctl.compiling.todo import Todo

ONE, OTHER, NONE = Group("A", "a()"), Group("B", "b()"), Group("", "")


def listing(group: Group) -> ListAsk:
    return ListAsk(group, ("sm_90",))


def makes(group: Group, count: int) -> list[MakeAsk]:
    return [MakeAsk(group, "sm_90", n, 0, f"sm_90:k:{group.case}{n}") for n in range(count)]


def test_everything_is_listed_before_anything_is_compiled() -> None:
    """So that it is soon known how much there is to do."""
    todo = Todo([listing(ONE), listing(OTHER)])
    assert todo.next(NONE) == listing(ONE)
    todo.listed(makes(ONE, 1))
    assert todo.next(ONE) == listing(OTHER)
    todo.listed([])
    assert todo.next(OTHER) == makes(ONE, 1)[0]
    assert todo.next(ONE) is None


def test_a_child_stays_with_its_case_and_others_go_where_most_is_left_for_each() -> None:
    """Of 3 and 5 launches the first child keeps the 3 that it listed, two more take the 5."""
    todo = Todo([listing(ONE), listing(OTHER)])
    todo.next(NONE), todo.next(ONE)
    todo.listed([*makes(ONE, 5), *makes(OTHER, 3)])
    todo.listed([])
    taken = [todo.next(group) for group in (OTHER, NONE, NONE, OTHER, ONE)]
    assert [one.group for one in taken if one] == [OTHER, ONE, ONE, OTHER, ONE]


def test_a_child_without_work_waits_for_what_another_is_listing() -> None:
    """It is not done before the last list has come."""
    todo, got = Todo([listing(ONE)]), list[Ask | None]()
    todo.next(NONE)
    waiting = Thread(target=lambda: got.append(todo.next(NONE)), daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert got == []
    todo.listed(makes(ONE, 1))
    waiting.join(10)
    assert got == [makes(ONE, 1)[0]]
    assert todo.next(ONE) is None
