"""Which Xe generation an Intel GPU is of, by PCI id, and what every GPU of a generation has.

Ids: include/drm/intel/pciids.h of Linux. The rest: Intel's oneAPI GPU optimization guide and the
product pages: whether there are matrix units (XMX) and double precision in hardware.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec


class Generation(msgspec.Struct, frozen=True):
    """arch: the name that machine files use. compute: whether PyTorch's XPU build supports it.

    All of them have half precision: it came with Broadwell.
    """

    arch: str
    name: str
    compute: bool = True
    xmx: bool = True
    fp64: bool = True
    fp16: bool = True
    integrated: bool = False


_ALCHEMIST = Generation("xe-hpg", "Xe-HPG (Alchemist)", fp64=False)
_PONTE_VECCHIO = Generation("xe-hpc", "Xe-HPC (Ponte Vecchio)")
_BATTLEMAGE = Generation("xe2-hpg", "Xe2-HPG (Battlemage)")
_METEOR_LAKE = Generation(
    "xe-lpg", "Xe-LPG (Meteor Lake, Arrow Lake)", xmx=False, fp64=False, integrated=True
)
_ARROW_LAKE_H = Generation("xe-lpg-plus", "Xe-LPG+ (Arrow Lake-H)", fp64=False, integrated=True)
_LUNAR_LAKE = Generation("xe2-lpg", "Xe2-LPG (Lunar Lake)", integrated=True)
_PANTHER_LAKE = Generation("xe3-lpg", "Xe3-LPG (Panther Lake)", integrated=True)
_OLDER = Generation(
    "xe-lp", "Xe-LP or older", compute=False, xmx=False, fp64=False, integrated=True
)
_DG1 = Generation("xe-lp", "Xe-LP (DG1)", compute=False, xmx=False, fp64=False)

_IDS: Mapping[Generation, str] = MappingProxyType(
    {
        _ALCHEMIST: "5690 5691 5692 5693 5694 5695 5696 5697 56a0 56a1 56a2 56a3 56a4 56a5 56a6 "
        "56b0 56b1 56b2 56b3 56ba 56bb 56bc 56bd 56be 56bf 56c0 56c1 56c2",
        _PONTE_VECCHIO: "0b69 0b6e 0bd4 0bd5 0bd6 0bd7 0bd8 0bd9 0bda 0bdb 0be0 0be1 0be5",
        _BATTLEMAGE: "e202 e209 e20b e20c e20d e210 e211 e212 e216 e220 e221 e222 e223",
        _METEOR_LAKE: "7d40 7d45 7d55 7d60 7dd5 7d41 7d67 b640",
        _ARROW_LAKE_H: "7d51 7dd1",
        _LUNAR_LAKE: "6420 64a0 64b0",
        _PANTHER_LAKE: "b080 b081 b082 b083 b084 b085 b086 b087 b08f b090 b0a0 b0b0 fd80 fd81",
        _DG1: "4905 4906 4907 4908 4909",
    }
)

# first two digits of the ids of Intel graphics before the ones above, back to Broadwell
_OLD_PREFIXES = "16 19 22 0a 1a 31 3e 46 4c 45 4e 59 5a 87 8a 9a 9b a7"


def generation_of(device: str | None) -> Generation | None:
    """The generation of a device id ("56a0"); None for one that is not in the table."""
    if device is None:
        return None
    for generation, ids in _IDS.items():
        if device in ids.split():
            return generation
    return _OLDER if device[:2] in _OLD_PREFIXES.split() else None
