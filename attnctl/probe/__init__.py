"""Reads this machine, or a tape of one, into a Machine."""

from __future__ import annotations
