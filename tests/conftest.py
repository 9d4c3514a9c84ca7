"""How hard the property tests try: quickly by default, for minutes under `make fuzz`.

No test sees the profiles of whoever runs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("default"), max_examples=2000)
settings.load_profile("default")

os.environ["XDG_DATA_HOME"] = "/nowhere"
os.environ.pop("ATTNCTL_PROFILE", None)

PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture
def plugins() -> Iterator[None]:
    """The faulty distribution is on the child's path, as an installed one would be."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PLUGINS), before)))
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
