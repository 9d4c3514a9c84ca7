"""What each declared case would launch, noted and not compiled.

`python -m tests.compiling.noting sm_90,gfx942` in a process of its own: one JSON list a case, of
its backend, target and text, the kernels that it launches, and the error that came instead, or "".
"""

from __future__ import annotations

import json
import sys

from attnctl.compiling.declared import compiled_backends
from attnctl.compiling.record import case_launches
from attnctl.compiling.targets import read_targets
from attnctl.ops.case import split_case
from attnctl.ops.catalog import case_of
from attnctl.registry import load
from attnctl.runtime import open_backend
from attnctl.smoke.compiling import compile_plans
from attnctl.smoke.planning import runnable_backends
from attnctl.smoke.request import Request


def main(targets: str) -> None:
    machines = {one.gpus[0].arch or "": one for one in read_targets(targets)}
    backends = compiled_backends(runnable_backends(load()))
    for plan in compile_plans(Request(targets=targets), backends, None, lambda cases: cases):
        for text in plan.runnable:
            case, kernels, error = case_of(*split_case(text)), [], ""
            try:
                launches = case_launches(open_backend(plan.backend), case, machines[plan.device])
                kernels = [launch.kernel.__name__ for launch in launches]
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
            print(json.dumps([plan.backend, plan.device, text, kernels, error]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
