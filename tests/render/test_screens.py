"""Every screen at every width, into a pipe and on terminals."""

from __future__ import annotations

import pytest

from tests.commands.running import LLAMA, MODELS, ROOT, run

GEMMA = str(MODELS / "gemma-3-27b.json")
MINICPM = str(MODELS / "minicpm3-4b.json")
TAPES = ROOT / "tests" / "machines"
SCREENS = (
    ("probe",),
    ("probe", "--replay", f"{TAPES}/h100x8.tape.json"),
    ("probe", "--replay", f"{TAPES}/h200-mig.tape.json", "--sources"),
    ("probe", "--replay", f"{TAPES}/amd-without-render-group.tape.json"),
    ("probe", "--replay", f"{TAPES}/nvidia-no-driver.tape.json"),
    ("probe", "--replay", f"{TAPES}/max1550.tape.json", "--sources"),
    ("probe", "--machine", "max1550"),
    ("probe", "--machine", "h200", "--diff", "h100"),
    ("select", "--model", LLAMA, "--machine", "h200"),
    ("select", "--model", GEMMA, "--machine", "t4", "--explain", "FLASH_ATTN", "--what-if"),
    ("select", "--model", GEMMA, "--machine", "h200", "--machine", "zen4"),
    ("select", "--model", LLAMA, "--machine", "h200", "--assume-installed", "none"),
    ("select", "--model", GEMMA, "--machine", "mi300x", "--machine", "h200", "--engine", "vllm"),
    ("select", "--model", MINICPM, "--machine", "rx7900xtx", "--engine", "vllm"),
    ("select", "--model", LLAMA, "--machine", "max1550", "--machine", "zen4", "--device", "1"),
    ("list",),
    ("list", "FLASH_ATTN"),
    ("profile", "list"),
    ("select", "--model", LLAMA, "--machine", "h200", "--sweep", "head_size=8..512"),
    ("explain", "compute_capability"),
    ("explain",),
    ("profile", "show", "h200"),
    ("profile", "show", "--origin", "--machine", "h200"),
    ("profile", "diff", "h200", "zen3"),
    ("profile", "verify", "h200", "--machine", "h200"),
    ("smoke", "--all", "--support", "--quick"),
)
# what these show is there to be pasted, and goes over the edge in one piece
PASTED = (
    ("smoke", "--backend", "CPU_ATTN", "--quick", "--list"),
    ("select", "--model", LLAMA, "--machine", "b200", "--engine", "vllm"),
)


@pytest.mark.parametrize("words", SCREENS, ids=" ".join)
@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_screen_overruns_its_terminal(words: tuple[str, ...], width: int) -> None:
    """No line is wider than the terminal, and without colour there is no escape."""
    found = run(*words, width=width)
    assert found.code in (0, 1)
    assert found.out.strip()
    assert max(map(len, found.out.splitlines())) <= width
    assert "\x1b" not in found.out


@pytest.mark.parametrize("words", PASTED, ids=" ".join)
def test_what_is_there_to_be_pasted_is_not_broken(words: tuple[str, ...]) -> None:
    """Lines that are too long for the terminal are those of a pipe, to the letter."""
    narrow, piped = run(*words, width=40).out, run(*words).out
    long = [line for line in narrow.splitlines() if len(line) > 40]
    assert long
    assert set(long) <= set(piped.splitlines())


def test_a_table_drawn_row_by_row_says_what_its_first_column_is() -> None:
    """Else what stands below `next in order` would look eligible."""
    words = ("select", "--model", LLAMA, "--machine", "l4", "--kv-cache-dtype", "fp8")
    lines = run(*words, width=60).out.splitlines()
    at = lines.index("next in order: TRITON_ATTN")
    assert lines[at + 1].split() == ["rejected", "reason"]
    assert lines[at + 2].split() == ["FLASH_ATTN", "kv_cache_dtype"]


@pytest.mark.parametrize("words", SCREENS, ids=" ".join)
def test_a_pipe_gets_the_words_of_the_terminal(words: tuple[str, ...]) -> None:
    """Drawn wide or piped, a screen says the same words in the same order."""
    piped, wide = run(*words), run(*words, width=2000)
    rules = {"-"}
    assert [word for word in wide.out.split() if set(word) != rules] == piped.out.split()


@pytest.mark.parametrize("words", SCREENS, ids=" ".join)
def test_a_pipe_gets_no_escape_and_no_trailing_blanks(words: tuple[str, ...]) -> None:
    """Piped text greps and diffs well."""
    out = run(*words).out
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_colour_is_drawn_on_a_terminal_that_has_it() -> None:
    """On a colour terminal the pick is marked."""
    assert (
        "\x1b[" in run("select", "--model", LLAMA, "--machine", "h200", width=100, colour=True).out
    )
