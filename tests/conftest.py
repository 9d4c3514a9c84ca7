"""How hard the property tests try: quickly by default, for minutes under `make fuzz`.

No test sees the profiles of whoever runs it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("default"), max_examples=2000)
settings.load_profile("default")

os.environ["XDG_DATA_HOME"] = "/nowhere"
os.environ.pop("ATTNCTL_PROFILE", None)
