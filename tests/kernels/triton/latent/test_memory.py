"""What selection grants of shared memory, the kernels of latent attention keep to."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.kernels.triton.latent.launch import latent_tiles
from attnctl.kernels.triton.launch import Device
from attnctl.layer import Options, layer_of
from attnctl.model.spec import ModelSpec
from attnctl.requirements.memory import smallest_tile_bytes
from tests.layer_factory import LATENT, latent

BLOCKS = {
    "sm_75": 65536,
    "sm_80": 166912,
    "sm_86": 101376,
    "sm_89": 101376,
    "sm_90": 232448,
    "sm_120": 101376,
    "gfx942": 65536,
    "gfx950": 163840,
    "gfx1100": 65536,
}


def granted_bytes(rank: int, dtype: str) -> int:
    layers = latent(mla=msgspec.structs.replace(LATENT, kv_lora_rank=rank))
    spec = ModelSpec(model_type="m", groups=(layers,), dtype=dtype)
    need = smallest_tile_bytes(layer_of(spec, layers, Options()))
    assert need is not None
    return need


@pytest.mark.parametrize("rank", [256, 512, 1024])
@pytest.mark.parametrize(("dtype", "item_bytes"), [("bfloat16", 2), ("float32", 4)])
@pytest.mark.parametrize("arch", BLOCKS)
def test_rows_that_selection_takes_have_a_tile(
    arch: str, dtype: str, item_bytes: int, rank: int
) -> None:
    """The rule's smallest tile fits the block: so does the kernel's own."""
    device = Device(arch, 100, BLOCKS[arch])
    taken = granted_bytes(rank, dtype) <= device.shared_memory_bytes
    if rank == 512:
        assert taken is (item_bytes == 2 or BLOCKS[arch] > 65536)
    if taken:
        for packed in (False, True):
            assert latent_tiles(device, 16, rank, 64, item_bytes, packed=packed).keys >= 16
