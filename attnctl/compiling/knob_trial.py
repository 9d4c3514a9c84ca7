"""What a case comes to on a target when all launches of all its settings are known. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attnctl.compiling.knob_lines import Listed, Made, kernel_of
from attnctl.compiling.report import NO_LAUNCH
from attnctl.smoke.trials import Status, Trial


def trial_of(case: str, listed: Listed, made: Mapping[str, Made], most_spills_bytes: int) -> Trial:
    """made: by key, of every key that was listed. most_spills_bytes: of the defaults' launches.

    A setting that spills is merely slow, and tune leaves it; one that does not load is bad. What
    several settings have in common is told once, with the first of them.
    """
    keys = dict.fromkeys(key for launches in listed.launches for key in launches)
    own = set(listed.launches[0]) if listed.launches else set()
    faults = [*_refused(listed)]
    for key in keys:
        of = [listed.settings[at] for at, these in enumerate(listed.launches) if key in these]
        more = f" and {len(of) - 1} more" if len(of) > 1 else ""
        most = most_spills_bytes if key in own else None
        faults += [f"{of[0]}{more}: {kernel_of(key)}: {fault}" for fault in made[key].faults(most)]
    if not keys and not faults:
        faults = [NO_LAUNCH]
    launches = tuple(one for key in keys if (one := made[key].launched) is not None)
    return Trial(
        case,
        _status(listed, made, faults),
        round(sum(launch.seconds for launch in launches), 3),
        detail="; ".join(faults),
        launches=tuple(dict.fromkeys(launches)),
    )


def _refused(listed: Listed) -> Iterator[str]:
    for place, why in listed.refused.items():
        yield f"{listed.settings[place]}: {why}"


def _status(listed: Listed, made: Mapping[str, Made], faults: list[str]) -> Status:
    """That of the defaults where they do not compile; any other fault makes the case wrong."""
    if 0 in listed.refused:
        return "error"
    for key in listed.launches[0] if listed.launches else ():
        status = made[key].status
        if status != "compiled":
            return status
    return "wrong" if faults else "pass"
