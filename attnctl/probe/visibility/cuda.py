"""NVIDIA's masks, as the CUDA programming guide has them under "CUDA Environment Variables"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnctl.findings import Finding, unknown
from attnctl.probe.visibility.masks import (
    Entry,
    Visible,
    everything,
    leading_number,
    mask_unmet,
    named,
    words,
)

CUDA_NAMES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


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
        findings.append(mask_unmet("visibility.cuda.duplicate", found, source, fix))
        entries = []
    parts = [entry for entry in entries if entry.part]
    if parts and len(entries) > 1:
        found = "a MIG instance beside other devices: a CUDA process uses one instance alone"
        fix = f"CUDA_VISIBLE_DEVICES={parts[0].part}"
        findings.append(mask_unmet("visibility.cuda.mig", found, source, fix))
        entries = parts[:1]
    findings += _order_finding(environment, mask, source, names)
    return Visible(tuple(entries), source, tuple(findings))


def _cuda_entries(
    mask: str, source: str, uuids: Sequence[str | None], mig: Sequence[tuple[str, int]]
) -> tuple[list[Entry], list[Finding]]:
    """The entries before the first that fits nothing, and why that one does not."""
    entries: list[Entry] = []
    for word in words(mask):
        fitting = _cuda_fitting(word, uuids, mig)
        if len(fitting) == 1:
            entries.append(fitting[0])
            continue
        if len(fitting) > 1:
            found = f"error: ambiguous prefix {word}: it fits {len(fitting)} devices"
            fix = "write more of the UUID, up to where it fits one device only"
            return entries, [mask_unmet("visibility.cuda.ambiguous", found, source, fix)]
        if word == "-1" or word.lower() in ("nodevfiles", "none", "void"):
            # the documented ways to end the list on purpose
            return entries, []
        found = f"{named(word)} fits no device; it and everything after it are hidden"
        fix = f"there are {len(uuids)} GPUs: use 0 to {len(uuids) - 1} or a UUID from nvidia-smi -L"
        if not uuids:
            fix = ""
        return entries, [mask_unmet("visibility.cuda.invalid", found, source, fix)]
    return entries, []


def _cuda_fitting(
    word: str, uuids: Sequence[str | None], mig: Sequence[tuple[str, int]]
) -> list[Entry]:
    index = leading_number(word)
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
    numbered = any(leading_number(word) is not None and word != "-1" for word in words(mask))
    if not numbered or order == "PCI_BUS_ID" or len(set(names)) < 2:
        return []
    wanted = "numbers that mean the same GPU to CUDA and to NVML"
    found = f"different GPUs, and CUDA_DEVICE_ORDER is {order}: 0 is the fastest, not the first"
    return [
        unknown("visibility.cuda.order", wanted, found, source, "set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    ]
