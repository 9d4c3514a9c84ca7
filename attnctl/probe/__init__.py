"""Reads this machine, or a tape of one, into a Machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnctl.machine import Machine
    from attnctl.probe.host import Host


def probe(host: Host | None = None) -> Machine:
    """The machine that a host describes, this one by default. It never raises.

    host: a Recorder to keep what was asked, a Replay of a tape for another machine.
    """
    # the children import this package too, and must start fast
    from attnctl.probe.assemble import assemble
    from attnctl.probe.realhost import RealHost

    return assemble(RealHost() if host is None else host)
