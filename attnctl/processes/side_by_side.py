"""Several streams of results at once, each from a thread that waits for a child of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")


class _End:
    """A stream is over."""


def side_by_side(streams: Sequence[Iterable[T]]) -> Iterator[T]:
    """What the streams give, as it comes. The first error of a stream is raised here.

    Where it is left early, by an interrupt say, each stream is closed after its next result.
    """
    done: SimpleQueue[T | _End | BaseException] = SimpleQueue()
    stopped = Event()

    def drain(stream: Iterable[T]) -> None:
        try:
            for one in stream:
                done.put(one)
                if stopped.is_set():
                    break
            done.put(_End())
        except BaseException as error:
            done.put(error)

    for stream in streams:
        Thread(target=drain, args=(stream,), daemon=True).start()
    left = len(streams)
    try:
        while left:
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            if isinstance(found, _End):
                left -= 1
            else:
                yield found
    finally:
        stopped.set()
