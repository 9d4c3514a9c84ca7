"""A tuned selection profile: measured timings by layer shape and workload point, as one JSON file.

A profile is keyed by what the hardware is, never by its marketing name. It may reorder the eligible
backends; it never makes an ineligible one eligible.
"""

from attnctl.profile.document import (
    Entry as Entry,
)
from attnctl.profile.document import (
    Key as Key,
)
from attnctl.profile.document import (
    Point as Point,
)
from attnctl.profile.document import (
    Profile as Profile,
)
from attnctl.profile.document import (
    Shape as Shape,
)
from attnctl.profile.document import (
    Timing as Timing,
)
from attnctl.profile.document import (
    Versions as Versions,
)
from attnctl.profile.document import (
    key_of as key_of,
)
from attnctl.profile.document import (
    parse as parse,
)
from attnctl.profile.document import (
    read_profile as read_profile,
)
from attnctl.profile.document import (
    shape_of as shape_of,
)
from attnctl.profile.document import (
    versions_of as versions_of,
)
from attnctl.profile.match import Match as Match
from attnctl.profile.match import match as match
from attnctl.profile.order import Order as Order
from attnctl.profile.order import measured_order as measured_order
