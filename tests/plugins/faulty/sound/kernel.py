"""Planted for a test of smoke."""

from faulty.reference import Reference


class Sound(Reference):
    """The specification as it is."""


RUNTIME = Sound()
