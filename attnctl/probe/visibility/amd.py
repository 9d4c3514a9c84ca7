"""AMD's masks, as ROCm's documentation has them under "GPU isolation techniques"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnctl.findings import Finding, unknown, unmet
from attnctl.probe.visibility.masks import Entry, Visible, leading_number, mask_unmet, named, words

AMD_NAMES = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)


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
    for word in words(mask):
        index = leading_number(word)
        if index is None:
            # a GPU without a UUID fits no entry, not even an empty one
            fits = [at for at in left if word and (uuids[at] or "").lower() == word.lower()]
        else:
            fits = left[index : index + 1] if index >= 0 else []
        if not fits:
            if word != "-1":
                found = f"{named(word)} fits none of the {len(left)} GPUs that are left"
                fix = f"use 0 to {len(left) - 1}" if left else ""
                findings.append(mask_unmet("visibility.amd.invalid", found, source, fix))
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
