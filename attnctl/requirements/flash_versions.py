"""Which FlashAttention version serves a layer on an NVIDIA device.

FA2 needs compute capability 8.0, FA3 9.x, FA4 9.x to 11.x, and each its package. 9.x prefers FA3,
10.x FA4, everything else FA2; ALiBi is in FA2 alone, unequal K and V widths are not; head sizes
above 256, and sinks with unequal widths or widths that FA3 does not pair, need FA4 on 9.x; FA4 on
Blackwell takes head sizes up to 128 and (192, 128).
"""

from __future__ import annotations

from attnctl.layer import Layer
from attnctl.requirements.devices import Version, capability_of
from attnctl.requirements.packages import installed
from attnctl.requirements.rule import Subject

FA2_PAGE = 256
"""Of what the flash-attn package takes pages to be multiples; vLLM's build of FA2 takes 16."""

PACKAGES = {2: "flash_attn", 3: "flash_attn_3", 4: "flash_attn_4"}

CARRIER = "vllm"
"""vLLM's wheel carries all three under vllm.vllm_flash_attn."""


def flash_version(subject: Subject) -> int | None:
    """The FlashAttention version that would run this layer here, None where none would."""
    cc = capability_of(subject)
    if cc is None:
        return None
    for version in suitable_versions(cc, subject.layer):
        if has_flash(subject, version):
            return version
    return None


def has_flash(subject: Subject, version: int) -> bool:
    """Whether a package that brings this version is installed."""
    return installed(subject, PACKAGES[version]) or is_carried(subject, version)


def is_carried(subject: Subject, version: int) -> bool:
    """Whether vLLM is there and brings this version."""
    if not installed(subject, CARRIER):
        return False
    # a probe lists the compiled ones in its build; FA4 is Python source and in every wheel
    compiled = subject.machine.packages[CARRIER].build.get("flash_attn")
    return version == 4 or compiled is None or str(version) in compiled.split(",")


def suitable_versions(cc: Version, layer: Layer) -> list[int]:
    """The versions that take this layer on this device, the preferred one first."""
    return [version for version in _preference(cc, layer) if _device_takes(version, cc)]


def _preference(cc: Version, layer: Layer) -> tuple[int, ...]:
    if layer.group.alibi:
        return (2,)
    unequal = layer.op == "diffkv"
    size = max(layer.head_size or 0, layer.head_size_v or 0)
    if cc[0] == 9:
        if size > 256 or (unequal and (layer.group.sinks or not _paired(layer))):
            return (4,)
        return (3, 4) if unequal else (3, 4, 2)
    if cc[0] in (10, 11) and (size <= 128 or (layer.head_size, layer.head_size_v) == (192, 128)):
        if unequal:
            return (4,)
        # the field keeps FA2 on 11.x, and takes FA4 where that alone is there
        return (4, 2) if cc[0] == 10 else (2, 4)
    return () if unequal else (2,)


def _paired(layer: Layer) -> bool:
    """Whether FA3 takes these unequal widths of K and V: its own check, in its words' order."""
    width, width_v = layer.head_size or 0, layer.head_size_v or 0
    return (128 < width <= 192 and 96 < width_v <= 128) or (width <= 64 and width_v <= 512)


def _device_takes(version: int, cc: Version) -> bool:
    return {2: cc >= (8, 0), 3: cc[0] == 9, 4: cc[0] in (9, 10, 11)}[version]


def flash_block_multiple(subject: Subject) -> int | None:
    """256 where the flash-attn package's own FA2 serves the layer; None: as elsewhere."""
    if subject.platform != "cuda" or flash_version(subject) != 2 or is_carried(subject, 2):
        return None
    return FA2_PAGE


def flash_page(subject: Subject) -> int:
    """Tokens of the smallest cache block of whatever FlashAttention serves the layer."""
    return flash_block_multiple(subject) or (64 if subject.platform == "xpu" else 16)
