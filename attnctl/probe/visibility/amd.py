"""AMD's masks, as ROCm's documentation has them under "GPU isolation techniques".

How an entry is read stands in the runtimes' sources: ROCR-Runtime, amd_filter_device.cpp, and clr,
rocdevice.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from attnctl.findings import Finding, unknown, unmet
from attnctl.probe.visibility.masks import Entry, Visible, mask_unmet, named

AMD_NAMES = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
# what strtol takes with base 0, less the numbers that no count of GPUs reaches
_NUMBER = re.compile(
    r"\+?(?:0x(?P<hex>[0-9a-f]{1,6})|0(?P<octal>[0-7]{0,6})|(?P<plain>[1-9]\d{0,5}))"
)
# "GPU-" and 16 hexadecimal digits; a prefix has at least one of them
_SHORTEST, _LONGEST = 5, 20


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
        left = _filtered(rocr, left, uuids, _rocr_fitting, sources[-1], findings)
    second = [
        (name, value)
        for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
        if (value := environment.get(name)) is not None
    ]
    if second:
        name, value = second[0]
        sources.append(f"{name}={value}")
        findings += _conflict(second) if value else _empty(second)
        before = left
        left = _filtered(value, left, uuids, _hip_fitting, sources[-1], findings)
        if rocr is not None and before and not left:
            found = f"ROCR_VISIBLE_DEVICES leaves {len(before)}, and {name} numbers those from 0"
            fix = f"unset {name}, or set it to 0"
            wanted = "masks that leave a GPU"
            cut = unmet("visibility.amd.double_mask", wanted, found, "; ".join(sources), fix)
            findings.append(cut)
    entries = tuple(Entry(index) for index in left)
    return Visible(entries, "; ".join(sources), tuple(findings))


Fitting = Callable[[str, list[int], Sequence[str | None]], "list[int]"]


def _filtered(
    mask: str,
    left: list[int],
    uuids: Sequence[str | None],
    fitting: Fitting,
    source: str,
    findings: list[Finding],
) -> list[int]:
    """What one mask picks from the GPUs that are left; it ends at the first that fits not one.

    A device that is named twice ends ROCR's list, and HIP passes over it.
    """
    picked: list[int] = []
    for word in _entries(mask):
        fits = fitting(word, left, uuids)
        if len(fits) != 1:
            if word.strip() != "-1":
                findings.append(_misfit(word, fits, left, source))
            break
        if fits[0] not in picked:
            picked.append(fits[0])
        elif fitting is _rocr_fitting:
            found = f"{word.strip()} is named twice; it and everything after it are hidden"
            fix = "name each device once in ROCR_VISIBLE_DEVICES"
            findings.append(mask_unmet("visibility.amd.invalid", found, source, fix))
            break
    return picked


def _entries(mask: str) -> list[str]:
    """The entries, with their blanks; a comma at the end begins none."""
    return mask.removesuffix(",").split(",") if mask.strip() else []


def _rocr_fitting(word: str, left: list[int], uuids: Sequence[str | None]) -> list[int]:
    """Numbers as strtol reads them, to their end; a UUID, or a prefix that fits one alone."""
    word = word.strip().lower()
    if word.startswith("g"):
        known = _SHORTEST <= len(word) <= _LONGEST
        return [at for at in left if known and (uuids[at] or "").lower().startswith(word)]
    number = _NUMBER.fullmatch(word)
    if number is None:
        return []
    base = {"hex": 16, "octal": 8, "plain": 10}[number.lastgroup or ""]
    return _at(int(number[number.lastgroup or ""] or "0", base), left)


def _hip_fitting(word: str, left: list[int], uuids: Sequence[str | None]) -> list[int]:
    """Numbers as they are printed, without blanks; the first GPU that a prefix of a UUID fits."""
    if word.startswith("GPU-"):
        return [at for at in left if (uuids[at] or "").startswith(word)][:1]
    plain = word.isascii() and word.isdecimal() and len(word) < 6 and str(int(word)) == word
    return _at(int(word), left) if plain else []


def _at(index: int, left: list[int]) -> list[int]:
    return left[index : index + 1]


def _misfit(word: str, fits: list[int], left: list[int], source: str) -> Finding:
    """Why an entry fits not one GPU, and what to write in its place."""
    plain = word.strip()
    fix = f"use 0 to {len(left) - 1}" if left else ""
    found = f"{named(plain)} fits none of the {len(left)} GPUs that are left"
    if fits:
        found = f"{plain} fits {len(fits)} GPUs; it and everything after it are hidden"
        fix = "write more of the UUID, up to where it fits one device only"
    elif plain != word and plain.isdecimal() and _hip_fitting(plain, left, ()):
        found = f"{plain} has blanks beside it, which HIP does not take; it and all after it are "
        found += "hidden"
        fix = "write the mask without blanks"
    return mask_unmet("visibility.amd.invalid", found, source, fix)


def _conflict(second: Sequence[tuple[str, str]]) -> list[Finding]:
    name, value = second[0]
    others = [(other, text) for other, text in second[1:] if text.strip() != value.strip()]
    if not others:
        return []
    other, text = others[0]
    found = f"conflict: {name}={value} and {other}={text}; HIP follows {name}"
    wanted = "one mask for HIP"
    return [unmet("visibility.amd.conflict", wanted, found, f"{name}, {other}", f"unset {other}")]


def _empty(second: Sequence[tuple[str, str]]) -> list[Finding]:
    """HIP takes a mask that is set and empty as one that is not set; PyTorch does not."""
    name = second[0][0]
    follows = next((other for other, text in second[1:] if text), "")
    shows = f"follows {follows}" if follows else "shows all"
    found = f"{name} is set and empty: PyTorch counts no GPU, the HIP runtime {shows}"
    wanted = "a mask that all layers read alike"
    fix = f"unset {name}" if follows else f"set {name}=-1 to hide all"
    return [unknown("visibility.amd.empty", wanted, found, f"{name}=", fix)]
