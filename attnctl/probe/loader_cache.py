"""What the dynamic loader has in its cache: /etc/ld.so.cache, in glibc's newer format.

Source of the layout: ldconfig(8) of glibc, sysdeps/generic/dl-cache.h: a header of 48 bytes, then
an entry of 24 bytes for each library, then the strings that they point at.
"""

from __future__ import annotations

import struct

PATH = "/etc/ld.so.cache"
MAGIC = b"glibc-ld.so.cache1.1"
HEADER_BYTES, COUNT_AT = 48, 20
ENTRY = struct.Struct("=iIIIQ")
# an entry's flags: libc6's ELF, and the machine that it is for
ELF_LIBC6, MACHINE_MASK = 0x3, 0xFF00
MACHINES = {"x86_64": 0x0300, "aarch64": 0x0A00, "ppc64le": 0x0500, "riscv64": 0x1000}
# a cache holds some thousand; more is no cache
MOST = 100_000


def parse(data: bytes, machine: str) -> dict[str, str]:
    """Name -> path of the first entry for this machine. ValueError: it is no such cache."""
    start = data.find(MAGIC)
    if start < 0:
        raise ValueError("not a cache of glibc 2.32 or newer")
    data = data[start:]  # an older cache may stand before it; offsets count from here
    (count,) = struct.unpack_from("=I", data, COUNT_AT)
    if count > MOST or HEADER_BYTES + count * ENTRY.size > len(data):
        raise ValueError("the cache is cut off")
    wanted = MACHINES.get(machine)
    found: dict[str, str] = {}
    for place in range(count):
        flags, key, value, _, _ = ENTRY.unpack_from(data, HEADER_BYTES + place * ENTRY.size)
        if flags & 0xFF == ELF_LIBC6 and wanted in (None, flags & MACHINE_MASK):
            found.setdefault(_text(data, key), _text(data, value))
    return found


def _text(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset)
    return data[offset : max(end, offset)].decode("utf-8", "replace")
