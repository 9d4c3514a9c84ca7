"""The processor's kernels by AMX's tiles, whose products plain C++ computes here."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
import torch

from attnctl.kernels.cpu.build import build, isa_flags
from attnctl.kernels.cpu.build_compilers import compilers
from attnctl.kernels.cpu.build_tiles import build_tiles, known, tile_flags
from attnctl.kernels.cpu.call import NativeKernels
from attnctl.kernels.cpu.paged import SOURCE
from attnctl.probe.cpu import probe_cpu
from attnctl.probe.ledger import Ledger
from attnctl.probe.realhost import RealHost
from tests.kernels.cpu.batches import (
    Filled,
    attend,
    fill,
    judge,
    outputs_of_nothing_seen,
    outputs_of_seen_nan,
    poison_unseen,
    reference,
)
from tests.kernels.cpu.test_attention import FEATURES, MIXED

SPAN = 256
"""Tokens of context that are weighed at a time, in paged_amx_layout.h."""


def opened(*more: str) -> NativeKernels:
    cpu = probe_cpu(RealHost(), Ledger())
    made = build(SOURCE, (*isa_flags(cpu.arch, cpu.isa), *more), dict(os.environ))
    assert made.path is not None, made
    return NativeKernels(made.path)


@pytest.fixture(scope="module")
def tiles() -> NativeKernels:
    """Every batch of bfloat16 in tiles, few rows, too."""
    kernels = opened("-DTILES_EMULATED")
    kernels.tune(direct_rows=0)
    return kernels


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_is_as_exact_as_its_precision(tiles: NativeKernels, feature: str) -> None:
    """A mixed batch, whose weights are rounded, stays within the budget of bfloat16."""
    result = judge(tiles, dtype="bfloat16", **{**MIXED, **FEATURES[feature]})
    assert result.verdict == "pass", result


@pytest.mark.parametrize("size", [16, 32, 40, 64, 72, 80, 96, 112, 128, 192, 256, 512])
def test_every_head_size(tiles: NativeKernels, size: int) -> None:
    """Widths that fill no tile, and the widest."""
    result = judge(tiles, dtype="bfloat16", head_size=size, queries="1+20", contexts="67+40")
    assert result.verdict == "pass", result


@pytest.mark.parametrize("sizes", [(192, 128), (128, 192), (40, 72), (96, 8), (13, 5)])
def test_keys_and_values_of_unequal_width(tiles: NativeKernels, sizes: tuple[int, int]) -> None:
    """D and Dv apart, either one wider, also below a tile and odd."""
    widths = {"head_size": sizes[0], "head_size_v": sizes[1]}
    result = judge(tiles, dtype="bfloat16", **{**MIXED, **widths})
    assert result.verdict == "pass", result


@pytest.mark.parametrize("heads", [(7, 1), (10, 2), (71, 1), (4, 4), (16, 1), (34, 2)])
@pytest.mark.parametrize("queries", ["1+1", "4+3", "30+2"])
def test_every_ratio_of_heads(tiles: NativeKernels, heads: tuple[int, int], queries: str) -> None:
    """Rows that are turned (up to 16), that fill half a block, and that end inside one."""
    sizes = {"heads": heads[0], "kv_heads": heads[1]}
    result = judge(tiles, dtype="bfloat16", queries=queries, contexts="65+290", **sizes)
    assert result.verdict == "pass", result


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, SPAN - 1, SPAN, SPAN + 1, 513])
@pytest.mark.parametrize("queries", ["1", "4", "all"])
def test_lengths_around_tiles_and_spans(tiles: NativeKernels, length: int, queries: str) -> None:
    """One context token fewer and more than a tile, a block and a span hold."""
    count = length if queries == "all" else min(int(queries), length)
    result = judge(tiles, dtype="bfloat16", queries=str(count), contexts=str(length))
    assert result.verdict == "pass", result


@pytest.mark.parametrize("queries", ["1", "4", "40"])
@pytest.mark.parametrize("masks", [{"window": 8}, {"chunk": 32}, {"window": 8, "ranges": True}])
def test_values_outside_the_mask_are_never_multiplied(
    tiles: NativeKernels, masks: dict[str, int], queries: str
) -> None:
    """NaN in every key and value that no query sees changes not one bit."""
    filled = fill(tiles, dtype="bfloat16", queries=queries, contexts="600", **masks)
    right = attend(tiles, filled)
    poison_unseen(filled, int(queries), 600)
    assert right.isfinite().all()
    assert torch.equal(attend(tiles, filled), right)


def test_what_is_seen_and_not_a_number_stays_so(tiles: NativeKernels) -> None:
    """A NaN in a visible value or key is not hidden."""
    for out in outputs_of_seen_nan(tiles, "bfloat16"):
        assert out.isnan().all()


@pytest.mark.parametrize("sinks", [False, True])
def test_rows_that_see_nothing_are_zero(tiles: NativeKernels, sinks: bool) -> None:
    """A window of no tokens, in decode and prefill, with and without a sink."""
    out = outputs_of_nothing_seen(tiles, sinks=sinks)
    assert torch.equal(out, torch.zeros_like(out))


@pytest.mark.parametrize("scale", [0.0, -0.5, 40.0])
def test_scales_that_turn_or_swamp_the_logits(tiles: NativeKernels, scale: float) -> None:
    """No scale, one below 0 and one that leaves a single token its weight."""
    filled = fill(tiles, dtype="bfloat16", queries="20", contexts="300")
    params = msgspec.structs.replace(filled.params, scale=scale)
    again = Filled(batch=filled.batch, cache=filled.cache, params=params)
    torch.testing.assert_close(
        attend(tiles, again).double(), reference(again), rtol=2e-2, atol=2e-2
    )


def test_threads_share_one_long_sequence(tiles: NativeKernels) -> None:
    """A context cut into parts gives what one thread gives, to rounding."""
    sizes = {"heads": 16, "kv_heads": 1, "queries": "2", "contexts": "3000"}
    filled = fill(tiles, dtype="bfloat16", **sizes)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = attend(tiles, filled)
        torch.set_num_threads(4)
        parts = attend(tiles, filled)
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(parts, alone, rtol=2e-2, atol=2e-3)
    torch.testing.assert_close(parts.double(), reference(filled), rtol=2e-2, atol=2e-3)


def test_tiles_take_what_is_bfloat16_and_more_than_a_few_rows() -> None:
    """Their rounding of weights shows where they compute, and nowhere else."""
    plain, tiled = opened(), opened("-DTILES_EMULATED")
    rows = {"heads": 8, "kv_heads": 1, "contexts": "300"}

    def same(dtype: str, queries: str) -> bool:
        filled = fill(plain, dtype=dtype, queries=queries, **rows)
        return torch.equal(attend(plain, filled), attend(tiled, filled))

    assert same("float32", "40")
    assert same("float16", "40")
    assert same("bfloat16", "1")
    assert not same("bfloat16", "2")
    assert not same("bfloat16", "40")


def test_flags_for_tiles_need_all_that_their_loops_use() -> None:
    """Tiles of bfloat16, its rounding by AVX-512, and AVX-512 as a whole."""
    wide = ("-mavx2", "-mavx512f", "-mavx512dq")
    whole = ("amx_tile", "amx_bf16", "avx512_bf16")
    assert tile_flags(whole, wide) == ("-mamx-tile", "-mamx-bf16", "-mavx512bf16")
    assert tile_flags(whole, ("-mavx2",)) == ()
    for missing in whole:
        assert tile_flags([name for name in whole if name != missing], wide) == ()


def test_a_compiler_that_knows_no_tiles_is_not_asked_for_them(tmp_path: Path) -> None:
    """Its build has the other flags, and no tiles."""
    environ = {"PATH": os.environ["PATH"]}
    (real,) = compilers(environ)[0]
    script = tmp_path / "old"
    script.write_text(f'#!/bin/sh\ncase "$*" in *-mamx*) exit 1;; esac\nexec {real} "$@"\n')
    script.chmod(0o755)
    assert known(("-mamx-tile",), {**environ, "CC": str(script)}) == ()
    assert known(("-DX",), {**environ, "CC": str(script)}) == ("-DX",)
    assert known(("-DX",), {"PATH": str(tmp_path)}) == ()


def test_the_build_here_has_the_flags_that_the_probe_found() -> None:
    """A machine with no tiles builds without them."""
    host = RealHost()
    cpu = probe_cpu(host, Ledger())
    flags = isa_flags(cpu.arch, cpu.isa)
    made = build_tiles(host, SOURCE)
    assert made.path is not None, made
    assert ("-mamx-tile" in made.finding.found) == bool(tile_flags(cpu.isa, flags))
    assert all(flag in made.finding.found for flag in flags)
