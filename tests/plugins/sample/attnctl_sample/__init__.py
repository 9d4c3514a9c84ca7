"""Backends that come with a distribution of their own."""
