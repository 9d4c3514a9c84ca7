"""Reads a model's config.json into a ModelSpec: layer groups, each value with its key path."""

from __future__ import annotations
