"""What the forms of a selection's answer can show, checked before the answer is worked out."""

from __future__ import annotations

from collections.abc import Sequence

from attnctl.exits import InputError


def check_shown(asked: Sequence[str], many: bool, vllm_args: bool, json: bool) -> None:
    """InputError for an option that the form of the answer would leave out.

    asked: options that add to a screen (--explain, --what-if). many: several models or machines.
    """
    if vllm_args and json:
        raise InputError("--vllm-args: prints flags, not JSON: leave out one of it and --json")
    if asked and vllm_args:
        raise InputError(f"{asked[0]}: --vllm-args prints flags only: leave out one of the two")
    if asked and many and not json:
        where = "one model on one machine: give one of each, or --json"
        raise InputError(f"{asked[0]}: is shown for {where}")
