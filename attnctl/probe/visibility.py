"""Which GPUs the masks of the environment leave, and under which numbers. Pure functions.

Sources: CUDA programming guide, "CUDA Environment Variables"; ROCm documentation, "GPU isolation
techniques"; Level Zero specification, "Environment Variables" and "Device hierarchy".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from attnctl.findings import Finding, unknown, unmet
from attnctl.machine import Gpu

CUDA_NAMES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
AMD_NAMES = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
INTEL_NAMES = ("ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY")


class Entry(msgspec.Struct, frozen=True):
    """One visible device: the physical GPU, and its part where only a part is visible.

    part: a MIG identifier, or the number of a sub-device (tile) as text; "" for the whole GPU.
    """

    physical: int
    part: str = ""


class Visible(msgspec.Struct, frozen=True):
    """entries: visible devices, in logical order. source: the masks that decided."""

    entries: tuple[Entry, ...]
    source: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def physical(self) -> tuple[int, ...]:
        return tuple(entry.physical for entry in self.entries)


def everything(count: int) -> Visible:
    return Visible(tuple(Entry(index) for index in range(count)))


def cuda_visible(
    environment: Mapping[str, str | None],
    uuids: Sequence[str | None],
    mig: Sequence[tuple[str, int]] = (),
    names: Sequence[str | None] = (),
) -> Visible:
    """What CUDA shows of NVIDIA GPUs that stand in PCI order.

    uuids: one per GPU. mig: (MIG UUID, physical GPU) pairs. names: to see whether the GPUs differ.
    An entry that fits nothing hides itself and everything after it; the same device twice hides
    everything. A mask that is set and empty hides everything.
    """
    mask = environment.get("CUDA_VISIBLE_DEVICES")
    if mask is None:
        return everything(len(uuids))
    source = f"CUDA_VISIBLE_DEVICES={mask}"
    entries, findings = _cuda_entries(mask, source, uuids, mig)
    if len(set(entries)) < len(entries):
        found = "a device is named twice, and CUDA then shows none"
        fix = "name each device once in CUDA_VISIBLE_DEVICES"
        findings.append(_cut("visibility.cuda.duplicate", found, source, fix))
        entries = []
    parts = [entry for entry in entries if entry.part]
    if parts and len(entries) > 1:
        found = "a MIG instance beside other devices: a CUDA process uses one instance alone"
        fix = f"CUDA_VISIBLE_DEVICES={parts[0].part}"
        findings.append(_cut("visibility.cuda.mig", found, source, fix))
        entries = parts[:1]
    findings += _order_finding(environment, mask, source, names)
    return Visible(tuple(entries), source, tuple(findings))


def _cuda_entries(
    mask: str, source: str, uuids: Sequence[str | None], mig: Sequence[tuple[str, int]]
) -> tuple[list[Entry], list[Finding]]:
    """The entries before the first that fits nothing, and why that one does not."""
    entries: list[Entry] = []
    for word in _words(mask):
        fitting = _cuda_fitting(word, uuids, mig)
        if len(fitting) == 1:
            entries.append(fitting[0])
            continue
        if len(fitting) > 1:
            found = f"error: ambiguous prefix {word}: it fits {len(fitting)} devices"
            fix = "write more of the UUID, up to where it fits one device only"
            return entries, [_cut("visibility.cuda.ambiguous", found, source, fix)]
        if word == "-1" or word.lower() in ("nodevfiles", "none", "void"):
            # the documented ways to end the list on purpose
            return entries, []
        found = f"{word} fits no device; it and everything after it are hidden"
        fix = f"there are {len(uuids)} GPUs: use 0 to {len(uuids) - 1} or a UUID from nvidia-smi -L"
        if not uuids:
            fix = ""
        return entries, [_cut("visibility.cuda.invalid", found, source, fix)]
    return entries, []


def _cuda_fitting(
    word: str, uuids: Sequence[str | None], mig: Sequence[tuple[str, int]]
) -> list[Entry]:
    index = _leading_number(word)
    if index is not None:
        return [Entry(index)] if 0 <= index < len(uuids) else []
    if word.upper().startswith("MIG-GPU-"):
        # the form before driver 470: MIG-<GPU UUID>/<instance>/<compute instance>
        uuid = word[4:].partition("/")[0].lower()
        return [Entry(at, word) for at, known in enumerate(uuids) if (known or "").lower() == uuid]
    wanted = word.lower()
    if wanted.startswith("mig-"):
        return [Entry(gpu, name) for name, gpu in mig if name.lower().startswith(wanted)]
    if not wanted.startswith("gpu-"):
        return []
    return [
        Entry(at) for at, known in enumerate(uuids) if known and known.lower().startswith(wanted)
    ]


def _order_finding(
    environment: Mapping[str, str | None], mask: str, source: str, names: Sequence[str | None]
) -> list[Finding]:
    """Numbers in a mask follow CUDA's own order, which is by speed unless it is set otherwise."""
    order = environment.get("CUDA_DEVICE_ORDER") or "FASTEST_FIRST"
    numbered = any(_leading_number(word) is not None and word != "-1" for word in _words(mask))
    if not numbered or order == "PCI_BUS_ID" or len(set(names)) < 2:
        return []
    wanted = "numbers that mean the same GPU to CUDA and to NVML"
    found = f"different GPUs, and CUDA_DEVICE_ORDER is {order}: 0 is the fastest, not the first"
    return [
        unknown("visibility.cuda.order", wanted, found, source, "set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    ]


def amd_visible(environment: Mapping[str, str | None], uuids: Sequence[str | None]) -> Visible:
    """What HIP shows of AMD GPUs: ROCR filters first, then HIP or CUDA indexes what is left.

    Of HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and GPU_DEVICE_ORDINAL, HIP takes the first set.
    """
    left = list(range(len(uuids)))
    sources: list[str] = []
    findings: list[Finding] = []
    rocr = environment.get("ROCR_VISIBLE_DEVICES")
    if rocr is not None:
        sources.append(f"ROCR_VISIBLE_DEVICES={rocr}")
        left = _amd_filter(rocr, left, uuids, sources[-1], findings)
    second = [
        (name, value)
        for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
        if (value := environment.get(name)) is not None
    ]
    if second:
        name, value = second[0]
        sources.append(f"{name}={value}")
        findings += _amd_conflict(second)
        findings += _amd_empty(name, value)
        before = left
        left = _amd_filter(value, left, uuids, sources[-1], findings)
        if rocr is not None and before and not left:
            found = f"ROCR_VISIBLE_DEVICES leaves {len(before)}, and {name} numbers those from 0"
            fix = f"unset {name}, or set it to 0"
            wanted = "masks that leave a GPU"
            cut = unmet("visibility.amd.double_mask", wanted, found, "; ".join(sources), fix)
            findings.append(cut)
    entries = tuple(Entry(index) for index in left)
    return Visible(entries, "; ".join(sources), tuple(findings))


def _amd_filter(
    mask: str,
    left: list[int],
    uuids: Sequence[str | None],
    source: str,
    findings: list[Finding],
) -> list[int]:
    """What one mask picks from the GPUs that are left; it ends at the first that fits nothing."""
    picked: list[int] = []
    for word in _words(mask):
        index = _leading_number(word)
        if index is None:
            fits = [at for at in left if (uuids[at] or "").lower() == word.lower()]
        else:
            fits = left[index : index + 1] if index >= 0 else []
        if not fits:
            if word != "-1":
                found = f"{word} fits none of the {len(left)} GPUs that are left"
                fix = f"use 0 to {len(left) - 1}" if left else ""
                findings.append(_cut("visibility.amd.invalid", found, source, fix))
            break
        if fits[0] not in picked:
            picked.append(fits[0])
    return picked


def _amd_conflict(second: Sequence[tuple[str, str]]) -> list[Finding]:
    name, value = second[0]
    others = [(other, text) for other, text in second[1:] if text.strip() != value.strip()]
    if not others:
        return []
    other, text = others[0]
    found = f"conflict: {name}={value} and {other}={text}; HIP follows {name}"
    wanted = "one mask for HIP"
    return [unmet("visibility.amd.conflict", wanted, found, f"{name}, {other}", f"unset {other}")]


def _amd_empty(name: str, value: str) -> list[Finding]:
    if value.strip():
        return []
    found = f"{name} is set and empty: PyTorch counts no GPU, the HIP runtime shows all"
    wanted = "a mask that all layers read alike"
    return [
        unknown("visibility.amd.empty", wanted, found, f"{name}=", f"set {name}=-1 to hide all")
    ]


def intel_visible(environment: Mapping[str, str | None], tiles: Sequence[int]) -> Visible:
    """What Level Zero shows of Intel GPUs. tiles: how many sub-devices each has (1: undivided).

    In the hierarchies FLAT (the default) and COMBINED each tile is a device of its own, and the
    mask counts tiles; in COMPOSITE "0.1" is tile 1 of device 0. A number that fits nothing is
    passed over, and ends nothing.
    """
    composite = (environment.get("ZE_FLAT_DEVICE_HIERARCHY") or "FLAT").upper() == "COMPOSITE"
    flat = [
        Entry(card, str(tile) if count > 1 else "")
        for card, count in enumerate(tiles)
        for tile in range(max(count, 1))
    ]
    mask = environment.get("ZE_AFFINITY_MASK")
    if mask is None:
        return everything(len(tiles)) if composite else Visible(tuple(flat))
    source = f"ZE_AFFINITY_MASK={mask}"
    entries: dict[Entry, None] = {}
    findings = []
    for word in _words(mask):
        fits = _composite_fit(word, tiles) if composite else _flat_fit(word, flat)
        if fits is None:
            found = f"{word} fits no device and is passed over"
            fix = f"use 0 to {len(tiles if composite else flat) - 1}" if tiles else ""
            findings.append(_cut("visibility.intel.invalid", found, source, fix))
        else:
            entries[fits] = None
    return Visible(tuple(sorted(entries, key=_device_order)), source, tuple(findings))


def _flat_fit(word: str, flat: Sequence[Entry]) -> Entry | None:
    return flat[int(word)] if _is_number(word) and int(word) < len(flat) else None


def _composite_fit(word: str, tiles: Sequence[int]) -> Entry | None:
    card, dot, tile = word.partition(".")
    if not _is_number(card) or int(card) >= len(tiles):
        return None
    if not dot:
        return Entry(int(card))
    return Entry(int(card), tile) if _is_number(tile) and int(tile) < tiles[int(card)] else None


def _device_order(entry: Entry) -> tuple[int, int]:
    # Level Zero keeps its own order, whatever the order in the mask
    return entry.physical, int(entry.part or 0)


def applied(gpus: Sequence[Gpu], visible: Visible) -> tuple[Gpu, ...]:
    """The GPUs with `visible` and `logical_index` set; they stand in the order that masks count.

    A GPU of which several parts are visible takes the number of the first.
    """
    logical: dict[int, int] = {}
    for number, entry in enumerate(visible.entries):
        logical.setdefault(entry.physical, number)
    return tuple(
        msgspec.structs.replace(gpu, visible=at in logical, logical_index=logical.get(at))
        for at, gpu in enumerate(gpus)
    )


def _cut(code: str, found: str, source: str, fix: str) -> Finding:
    return unmet(code, "a mask of which every entry fits one device", found, source, fix)


def _words(mask: str) -> list[str]:
    """The entries of a mask; an empty one between commas is an entry that fits nothing."""
    return [word.strip() for word in mask.split(",")] if mask.strip() else []


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 6


def _leading_number(word: str) -> int | None:
    """The number that an entry starts with, as strtol reads it; None where it starts with none."""
    sign = word[:1] if word[:1] in ("-", "+") else ""
    digits = ""
    for letter in word[len(sign) :]:
        if not (letter.isascii() and letter.isdigit()):
            break
        digits += letter
    if not digits or len(digits) > 9:
        return None
    return -int(digits) if sign == "-" else int(digits)
