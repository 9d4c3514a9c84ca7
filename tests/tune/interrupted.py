"""A tune that was interrupted, and one that may not go on from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnctl.exits import InputError
from attnctl.tune.session import tune
from tests.tune.fake import FakeBench, Silent, request


def begun(output: Path) -> Path:
    """A journal of a tune that was interrupted after its first point."""

    class Stop(Silent):
        def step(self, step: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(request(output), Stop(), FakeBench())
    (journal,) = output.parent.glob(f"{output.name}.*.journal")
    return journal


def refusal(output: Path, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        tune(request(output, resume=True, **more), Silent(), more.pop("bench", FakeBench()))
    said = str(caught.value)
    assert "\n" not in said
    return said
