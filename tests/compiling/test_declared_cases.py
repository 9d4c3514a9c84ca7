"""What backends want compiled beyond the quick cases, without compiling it: make compile does."""

from __future__ import annotations

import json

from tests.compiling.compiled import noted


def test_every_declared_case_is_launched_on_tensors_without_memory() -> None:
    """A check that asks where tensors lie must not refuse those that a compilation is made of."""
    found = [json.loads(line) for line in noted("sm_90,gfx942")]
    assert [row for row in found if not row[3] or row[4]] == []
    stored = {text.partition("kv_cache_dtype=")[2].strip(")") for _, _, text, _, _ in found}
    assert {"fp8_e4m3", "fp8_e5m2", "int8_per_token_head"} <= stored
