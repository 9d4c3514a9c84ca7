"""What is wrong with a compiled launch, and what Triton's own text says of its products."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.compiling.compiler import products
from attnctl.compiling.report import Launched

GOOD = Launched(
    kernel="prefill_kernel",
    variant="TILE=64",
    shared_bytes=1000,
    shared_limit_bytes=2000,
    registers=128,
    spills_bytes=0,
    products=("bf16",),
    matrix=("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16",),
)
FP8 = "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shared_bytes": 2001}, "needs 2001 bytes of shared memory, a block has 2000"),
        ({"spills_bytes": 513}, "spills 513 bytes, at most 512 may be"),
        ({"matrix": ()}, "multiplies bf16 without the matrix unit"),
        ({"products": ("bf16", "f8E4M3FN")}, "its FP8 products are silently up-cast"),
    ],
)
def test_each_fault_is_named(changes: dict[str, object], says: str) -> None:
    """Each is a fault by itself, and a launch without any has none."""
    assert GOOD.faults() == ()
    (fault,) = msgspec.structs.replace(GOOD, **changes).faults()
    assert fault.startswith(says)


def test_what_is_no_fault() -> None:
    """Spills inside a wider budget; FP8 on FP8's own instruction; no product and no instruction."""
    assert msgspec.structs.replace(GOOD, spills_bytes=600).faults(600) == ()
    assert msgspec.structs.replace(GOOD, products=("f8E5M2",), matrix=(FP8,)).faults() == ()
    assert msgspec.structs.replace(GOOD, products=(), matrix=()).faults() == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "%9 = tt.dot %7, %8, %5 : tensor<64x64xbf16> * tensor<64x32xbf16> -> tensor<64x32xf32>",
            ("bf16",),
        ),
        (
            "%9 = tt.dot %7, %8, %5, inputPrecision = tf32 : tensor<16x64xf32> * tensor<64x16xf32> "
            "-> tensor<16x16xf32>",
            ("f32",),
        ),
        # exact: no matrix unit has that everywhere
        ("%9 = tt.dot %7, %8, %5 : tensor<16x64xf32> * tensor<64x16xf32> -> tensor<16x16xf32>", ()),
        (
            "%9 = tt.dot %7, %8, %5 {maxNumImpreciseAcc = 0 : i32} : tensor<64x64xf8E4M3FN> * "
            "tensor<64x64xf8E4M3FN> -> tensor<64x64xf32>",
            ("f8E4M3FN",),
        ),
        ("%9 = arith.mulf %7, %8 : tensor<64x64xbf16>", ()),
    ],
)
def test_products_are_read_from_tritons_own_text(text: str, found: tuple[str, ...]) -> None:
    """The kernel says what it multiplies: nothing has to be declared beside it."""
    assert products(text) == found
