"""What a prefill tile takes of the tensor memory of data-center Blackwell. No torch.

Where it takes too much, Triton 3.6 and 3.7 make a kernel that only traps: no error, no matrix
instruction, and on the device the end of the process.
"""

from __future__ import annotations

from attnctl.kernels.triton.launch import padded, split_width
from attnctl.kernels.triton.paged.plan import Plan, Shape

COLUMNS = 512
"""Of a multiprocessor: 128 lanes of 4 bytes each (PTX ISA, tensor memory)."""


def tensor_columns(chosen: Plan, shape: Shape) -> int:
    """For each 128 rows: values, weights in half precision, and each part's products.

    From what 517 launches compiled to: those above COLUMNS trap, the others do not.
    """
    parts = 2 if split_width(shape.width)[1] else 1
    columns = padded(shape.value_width) + chosen.tile * parts + chosen.tile // 2
    return chosen.rows // 128 * columns


def fits_tensor_memory(chosen: Plan, shape: Shape, arch: str) -> bool:
    """True on every other arch, and where the products are of float32."""
    if (
        not arch.startswith(("sm_10", "sm_11"))
        or shape.item_bytes > 2
        or chosen.kernel != "prefill"
    ):
        return True
    return tensor_columns(chosen, shape) <= COLUMNS
