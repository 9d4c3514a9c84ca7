"""The environment variables that decide in vLLM, read as a user spells them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from attnctl.exits import InputError
from attnctl.nearest import did_you_mean

AITER = "VLLM_ROCM_USE_AITER"
BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
CONV_LAYOUT = "VLLM_SSM_CONV_STATE_LAYOUT"

_FLAG = {"1": "1", "true": "1", "0": "0", "false": "0"}
_ORDER = {"sd": "SD", "ds": "DS"}
VALUES: Mapping[str, Mapping[str, str]] = {
    AITER: _FLAG,
    BATCH_INVARIANT: _FLAG,
    CONV_LAYOUT: _ORDER,
}
"""Variable -> the spellings that it takes, each with the one that counts."""


class Switches(msgspec.Struct, frozen=True):
    """What is switched on: vLLM's defaults are off, and convolution states of [W - 1, C]."""

    aiter: bool = False
    batch_invariant: bool = False
    conv_transposed: bool = False


def switches_of(environment: Mapping[str, str]) -> Switches:
    """The switches that an environment sets; variables that decide nothing do not count."""
    known = {name: environment[name] for name in VALUES if name in environment}
    values = {name: _value(name, text) for name, text in known.items()}
    return Switches(
        values.get(AITER) == "1",
        values.get(BATCH_INVARIANT) == "1",
        values.get(CONV_LAYOUT) == "DS",
    )


def read_environment(words: Iterable[str], process: Mapping[str, str]) -> dict[str, str]:
    """Variable -> value of the words NAME=VALUE, else of a process on the machine asked about.

    InputError for a variable that decides nothing, or a value that it does not take.
    """
    found = {name: _value(name, process[name]) for name in VALUES if process.get(name)}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip()
        if name not in VALUES:
            hint = did_you_mean(name, VALUES) or f" Known are {', '.join(VALUES)}."
            raise InputError(f"--engine-env {word}: vLLM's choice reads no such variable.{hint}")
        if not equals:
            raise InputError(f"--engine-env {word}: give a value, as in {name}=1")
        found[name] = _value(name, text)
    return found


def _value(name: str, text: str) -> str:
    value = VALUES[name].get(text.strip().lower())
    if value is None:
        known = " or ".join(dict.fromkeys(VALUES[name].values()))
        raise InputError(f"{name}={text}: takes {known}")
    return value
