"""The child that plants: for each Fault on standard input, as JSON, a line with its Trial."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import IO, Any

import msgspec

from attnctl.selftest.faults import Fault
from attnctl.smoke.trials import Ready, Trial
from attnctl.smoke.worker import private_answers, say


def main() -> int:
    """Answers "pass" where every case of the fault passes without it and none with it."""
    answers = private_answers()
    _serve(answers)
    return 0


def _serve(answers: IO[bytes]) -> None:
    import torch

    # a row at a time there is nothing to share out, and waiting threads would only be in the way
    torch.set_num_threads(1)
    say(answers, Ready(ok=True, torch=str(torch.__version__)))
    for line in sys.stdin:
        planted = msgspec.json.decode(line, type=Fault)
        start = time.perf_counter()
        try:
            trial = _judge(planted)
        except Exception as error:  # the fault is then not caught, and this says why
            trial = Trial(planted.name, "error", 0.0, f"{type(error).__name__}: {error}"[:2000])
        seconds = time.perf_counter() - start
        say(answers, msgspec.structs.replace(trial, seconds=seconds))


def _judge(planted: Fault) -> Trial:
    from attnctl.ops.case import split_case
    from attnctl.ops.catalog import case_of, try_case

    module = import_module(f"attnctl.selftest.{planted.module}")
    shown = ""
    for text in planted.cases:
        case = case_of(*split_case(text))
        sound = try_case(module.sound(case), case, "cpu")
        if sound.verdict != "pass":
            return Trial(planted.name, "error", 0.0, f"{text} is wrong without it: {sound.detail}")
        found = try_case(faulty(module, planted.name, case), case, "cpu")
        if found.verdict == "pass":
            return Trial(planted.name, "wrong", 0.0, f"{text} passes with it")
        shown = shown or f"{found.verdict}: {found.detail}"
    return Trial(planted.name, "pass", 0.0, shown)


def faulty(module: Any, name: str, case: Any) -> Any:
    """The runtime with this fault: a class that has it, or what a function makes for the case."""
    plant = getattr(module, name)
    return plant() if isinstance(plant, type) else plant(case)


if __name__ == "__main__":
    sys.exit(main())
