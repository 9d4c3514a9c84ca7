"""Intel's masks, as Level Zero's specification has them under "Environment Variables"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnctl.probe.visibility.masks import (
    Entry,
    Visible,
    everything,
    is_number,
    mask_unmet,
    named,
    words,
)

INTEL_NAMES = ("ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY")


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
    for word in words(mask):
        fits = _composite_fit(word, tiles) if composite else _flat_fit(word, flat)
        if fits is None:
            found = f"{named(word)} fits no device and is passed over"
            fix = f"use 0 to {len(tiles if composite else flat) - 1}" if tiles else ""
            findings.append(mask_unmet("visibility.intel.invalid", found, source, fix))
        else:
            entries[fits] = None
    return Visible(tuple(sorted(entries, key=_device_order)), source, tuple(findings))


def _flat_fit(word: str, flat: Sequence[Entry]) -> Entry | None:
    return flat[int(word)] if is_number(word) and int(word) < len(flat) else None


def _composite_fit(word: str, tiles: Sequence[int]) -> Entry | None:
    card, dot, tile = word.partition(".")
    if not is_number(card) or int(card) >= len(tiles):
        return None
    if not dot:
        return Entry(int(card))
    return Entry(int(card), tile) if is_number(tile) and int(tile) < tiles[int(card)] else None


def _device_order(entry: Entry) -> tuple[int, int]:
    # Level Zero keeps its own order, whatever the order in the mask
    return entry.physical, int(entry.part or 0)
