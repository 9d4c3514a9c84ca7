"""One module per command; it is imported when the command is called."""

import sys
from contextlib import suppress
from importlib import import_module


def load_msgspec() -> None:
    """Imports msgspec without typing_extensions, of which it wants what typing has by itself.

    From Python 3.11 on; that import would take a quarter of an empty Python's time.
    """
    extensions = "typing_extensions"
    if sys.version_info < (3, 11) or extensions in sys.modules:
        return
    sys.modules[extensions] = None  # an import of it fails meanwhile
    try:
        with suppress(ImportError):  # a msgspec that cannot do without is imported with it later
            import_module("msgspec")
    finally:
        del sys.modules[extensions]
