"""Words of a profile as they may stand in a page."""

from __future__ import annotations

import html

from attnctl.render.plain import clean


def escape(text: str) -> str:
    """The text without markup, and without characters that a terminal would obey."""
    return html.escape(clean(text))
