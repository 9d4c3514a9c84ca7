"""The kernel's lists and records are read, or refused when they are damaged."""

import pytest

from attnctl.probe.cpuinfo import blocks, common_words, cpu_list, size_bytes


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3,8,10-11\n", (0, 1, 2, 3, 8, 10, 11)),
        ("0\n", (0,)),
        ("\n", ()),
        ("0-", None),
        ("a-b", None),
        ("0-99999999", None),
        ("9" * 5000, None),
    ],
)
def test_a_list_of_processors_is_numbers_or_nothing(text, numbers):
    """Ranges are spelled out; damage is None and never an endless list."""
    assert cpu_list(text) == numbers


@pytest.mark.parametrize(
    ("text", "size"),
    [("512K\n", 524288), ("32M", 33554432), ("64", 64), ("K", None), ("x", None), ("", None)],
)
def test_a_cache_size_has_a_binary_suffix(text, size):
    """Sysfs writes K and M."""
    assert size_bytes(text) == size


def test_only_what_every_processor_has_is_common():
    """Big and little cores differ, and a thread may move between them."""
    text = "processor : 0\nFeatures : asimd sve bf16\n\nprocessor : 1\nFeatures : asimd bf16\n\n"
    assert common_words(blocks(text), "features", "flags") == {"asimd", "bf16"}


def test_a_processor_without_the_key_has_nothing_in_common():
    """A record that lists no features vouches for none."""
    text = "processor : 0\nflags : avx2\n\nprocessor : 1\nmodel : 1\n"
    assert common_words(blocks(text), "flags") == frozenset()


def test_trailing_records_about_the_board_are_left_out():
    """Boards end /proc/cpuinfo with a record of their own, sometimes with a serial number."""
    text = "processor : 0\nFeatures : asimd\n\nHardware : BCM2835\nSerial : 1000\n"
    assert len(blocks(text)) == 1
