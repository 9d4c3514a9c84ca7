"""Plain readings of /proc/cpuinfo and of the kernel's lists of numbers."""

from __future__ import annotations

Block = dict[str, str]

# a list of processors longer than this is damage, not a machine
MOST_CPUS = 1 << 16


def blocks(text: str) -> tuple[Block, ...]:
    """The records of /proc/cpuinfo that are about one processor each, keys in lower case.

    Where none is (s390x lists features once), every record that says anything.
    """
    records = []
    for part in text.split("\n\n"):
        record: Block = {}
        for line in part.split("\n"):
            key, colon, value = line.partition(":")
            if colon and key.strip():
                record.setdefault(key.strip().lower(), value.strip())
        records.append(record)
    each = tuple(record for record in records if "processor" in record or "hart" in record)
    return each or tuple(record for record in records if record)


def common_words(records: tuple[Block, ...], *keys: str) -> frozenset[str]:
    """The words that every processor has under the first of the keys that it has.

    Processors of one machine can differ (big.LITTLE); code may be moved between them.
    """
    texts = {next((record[key] for key in keys if key in record), "") for record in records}
    return frozenset.intersection(*(frozenset(text.split()) for text in texts or {""}))


def values(records: tuple[Block, ...], key: str) -> tuple[str, ...]:
    """The different values of one key, in order of appearance."""
    return tuple(dict.fromkeys(record[key] for record in records if record.get(key)))


def cpu_list(text: str) -> tuple[int, ...] | None:
    """The numbers in a list as the kernel writes it ("0-3,8,10-11"); None where it is none."""
    numbers: list[int] = []
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = part.partition("-")
        low, high = _number(first), _number(last if dash else first)
        if low is None or high is None:
            return None
        if high - low >= MOST_CPUS or len(numbers) >= MOST_CPUS:
            return None
        numbers.extend(range(low, high + 1))
    return tuple(numbers)


def size_bytes(text: str) -> int | None:
    """A size as sysfs writes it ("512K", "32M"); None where it is none."""
    text = text.strip()
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    return int(digits) * scale if digits.isdecimal() and len(digits) < 16 else None


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdecimal() and len(text) < 10 else None
