"""Planted for a test of smoke."""

from faulty.reference import Reference

RUNTIME = Reference()
