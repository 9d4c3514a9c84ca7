"""What may run at one point: every backend's settings, on every size of the cache's blocks.

The backends of a layer share its cache. A size that one of them would rather have is tried with the
others too, where they take it: else nothing could be said of what it costs them. No torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from attnctl.tune.exchange import Bench, Candidate, Verdict
from attnctl.tune.settings import BLOCK_SIZE, Setting
from attnctl.tune.tasks import Rival, Task


class Offer(msgspec.Struct, frozen=True):
    """A backend's settings at one point, its default first."""

    rival: Rival
    settings: Sequence[Setting]

    def page(self, setting: Setting) -> int:
        """Tokens in a block of the cache that a setting is given."""
        return int(setting.knobs.get(BLOCK_SIZE, self.rival.page))

    def candidate(self, setting: Setting) -> Candidate:
        return Candidate(
            backend=self.rival.backend,
            knobs=setting.knobs,
            kernel=setting.kernel,
            page=self.page(setting),
        )


def offers(task: Task, bench: Bench) -> tuple[list[Offer], dict[str, Verdict]]:
    """Backend by backend in the default order, and why others cannot name their settings."""
    found: list[Offer] = []
    faults: dict[str, Verdict] = {}
    for rival in task.rivals:
        work = msgspec.structs.replace(task.work, page=rival.page)
        settings = bench.settings(work, rival.backend)
        if isinstance(settings, Verdict):
            faults[rival.backend] = settings
        else:
            found.append(Offer(rival, settings))
    asked = dict.fromkeys(page for one in found for page in _pages(one))
    return [_widened(one, asked) for one in found], faults


def _pages(offer: Offer) -> Iterable[int]:
    return dict.fromkeys(offer.page(setting) for setting in offer.settings)


def _widened(offer: Offer, asked: Iterable[int]) -> Offer:
    """Its kernels' defaults on the sizes that it does not name itself."""
    own = set(_pages(offer))
    if not own:
        return offer
    plain = [one for one in offer.settings if not one.knobs]
    more = [
        msgspec.structs.replace(one, knobs={BLOCK_SIZE: page})
        for page in asked
        if page not in own and offer.rival.takes(page)
        for one in plain
    ]
    return Offer(offer.rival, (*offer.settings, *more)) if more else offer
