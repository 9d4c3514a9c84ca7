"""The days on which something was measured, as 2026-11-30."""


def check_day(text: str) -> None:
    """ValueError: neither a day, as 2026-11-30, nor left out."""
    if text and not _is_day(text):
        raise ValueError(f"measured must be a day, as 2026-11-30, found {text}")


def _is_day(text: str) -> bool:
    # datetime costs a reader of profiles more than all its days
    parts = text.split("-")
    if [len(part) for part in parts] != [4, 2, 2] or not all(map(str.isdecimal, parts)):
        return False
    if not text.isascii():
        return False
    year, month, day = map(int, parts)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return year > 0 and 1 <= month <= 12 and 1 <= day <= days[month - 1]
