"""How much a first request compiles, before and after `attnctl warm`.

    python benchmarks/warm.py --model config.json --profile FILE [--batch 1,7,64] [--out FILE]

Three processes, each of which sees what the ones before left in the caches: `attnctl warm` on empty
caches, `attnctl warm` again, and a program that plans the model and runs a prompt and decode steps
of each batch size through it. The last must compile nothing. Say TRITON_CACHE_DIR and
XDG_CACHE_HOME, and let them be empty folders.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

CONTEXTS = (40, 300, 1500, 3500)
PROMPTS = (33, 500)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--batch", default="1,7,64")
    parser.add_argument("--jobs", default="4")
    parser.add_argument("--out")
    parser.add_argument("--request", action="store_true", help="be the program that serves")
    arguments = parser.parse_args()
    if arguments.request:
        return request(arguments)
    found = {}
    for name in ("first", "again"):
        found[name] = _warmed(arguments)
        _keep(arguments, name, found)
    words = [sys.executable, __file__, "--request", *sys.argv[1:]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr[-2000:])
    found["request"] = json.loads(done.stdout.splitlines()[-1])
    _keep(arguments, "request", found)
    request_made = found["request"]
    return int(bool(request_made["compiled"] or request_made["built"]))


def _keep(arguments, name, found):
    print(name, {k: v for k, v in found[name].items() if k != "jobs"}, flush=True)
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(found, indent=1))


def _warmed(arguments):
    words = ["warm", "--profile", arguments.profile, "--jobs", arguments.jobs, "--json"]
    command = [sys.executable, "-m", "attnctl", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr[-2000:])
    report = json.loads(done.stdout)
    report["jobs"] = [
        (one["shape"], one["backend"], one["setting"], one["made"]) for one in report["jobs"]
    ]
    return report


def request(arguments):
    """Plans the model as a user's program does, and runs batches whose shapes it never named."""
    import torch

    import attnctl
    from attnctl.tune.workload import Load
    from attnctl.warming.batches import run_once
    from attnctl.warming.worker import Count

    count = Count()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    begin = time.perf_counter()
    planned = attnctl.plan(arguments.model, profile=arguments.profile)
    planned_s = time.perf_counter() - begin
    before, ran = count.now(), 0
    for layer in planned.groups:
        for batch in map(int, arguments.batch.split(",")):
            for context in CONTEXTS:
                run_once(layer, Load(phase="decode", batch=batch, context=context), device)
                ran += 1
        for query in PROMPTS:
            run_once(layer, Load(phase="prefill", batch=1, context=query, query=query), device)
            ran += 1
    made = count.since(before, ran)
    row = {"compiled": made.compiled, "built": made.built, "found": made.found, "ran": made.ran}
    print(json.dumps({**row, "plan_s": round(planned_s, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
