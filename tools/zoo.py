"""Reads the default config of every model type that transformers knows, and lists refusals.

    python tools/zoo.py               fetch, dump and judge (what `make zoo` runs)
    python tools/zoo.py --dump-only   fetch and dump into .zoo/ only
    python tools/zoo.py --run-only    judge the configs that are already there; needs no network

The scratch environment .zoo/venv holds transformers without torch: its config classes need none.
Exit 1 where the reader crashes, or refuses more than a tenth of the model types that have
attention or state layers.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python tools/zoo.py` works in a checkout, uninstalled

import msgspec  # noqa: E402

from attnctl.model import read_model  # noqa: E402
from tools.zoo_check import Outcome, Report, judge_all  # noqa: E402

TRANSFORMERS = "transformers==5.23.*"


def fetch(folder: Path) -> None:
    """Makes the scratch environment and writes every default config into `folder`."""
    environment = folder / "venv"
    scripts = "Scripts" if sys.platform == "win32" else "bin"
    python = environment / scripts / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", TRANSFORMERS], check=True)
    dump = Path(__file__).with_name("zoo_dump.py")
    # transformers logs a page of advice about default token ids
    subprocess.run([python, dump, folder], check=True, stderr=subprocess.DEVNULL)


def summary(report: Report) -> str:
    """The counts on one line each."""
    read, refused = len(report.having("read")), len(report.having("refused"))
    share = 100 * refused / report.with_layers if report.with_layers else 0.0
    return "\n".join(
        (
            f"model types                          {len(report.outcomes)}",
            f"without attention or state layers    {len(report.having('none'))}",
            f"with attention or state layers       {report.with_layers}",
            f"  read                               {read}",
            f"  refused                            {refused} ({share:.1f} %)",
            f"crashes                              {len(report.having('crash'))}",
        )
    )


def grouped(outcomes: list[Outcome]) -> str:
    """Refusals under their reason, the reason once."""
    by_reason: dict[str, list[str]] = collections.defaultdict(list)
    for outcome in outcomes:
        by_reason[reason(outcome)].append(outcome.model_type)
    ranked = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    return "\n".join(f"{why}\n    {', '.join(names)}" for why, names in ranked)


def reason(outcome: Outcome) -> str:
    """The sentence without what is particular to one file, so that equal reasons meet."""
    if outcome.status == "crash":
        return outcome.text.strip().splitlines()[-1]
    text = re.sub(r"\S*" + re.escape(outcome.model_type) + r"\.json:? ?", "", outcome.text)
    return re.sub(rf"'?\b{re.escape(outcome.model_type)}\b'?", "this model type", text)


def show(report: Report) -> str:
    """The whole report as text."""
    parts = [summary(report)]
    for title, status in (("No such layers", "none"), ("Refused", "refused"), ("Crash", "crash")):
        if report.having(status):
            parts.append(f"{title}:\n{grouped(report.having(status))}")
    if report.unbuilt:
        rows = "\n".join(f"  {name}: {why[:100]}" for name, why in report.unbuilt.items())
        parts.append(f"Without a default config, since transformers fails to make one:\n{rows}")
    if report.doubtful:
        names = "\n".join(f"  {o.model_type}: {', '.join(o.evidence[:3])}" for o in report.doubtful)
        parts.append(f"Said to have no such layers, but transformers' source names some:\n{names}")
    if report.odd:
        rows = "\n".join(f"  {o.model_type:28} {line}" for o in report.odd for line in o.odd)
        parts.append(f"Read otherwise than transformers' attributes say:\n{rows}")
    parts.append(f"{len(report.explained)} more differ for the reasons in tools/zoo_known.py")
    return "\n\n".join(parts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Read every default config of transformers.")
    parser.add_argument("--dump-only", action="store_true", help="fetch and dump, judge nothing")
    parser.add_argument("--run-only", action="store_true", help="judge the existing dump")
    parser.add_argument("--folder", type=Path, default=ROOT / ".zoo", help="default: .zoo")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome there")
    options = parser.parse_args(arguments)
    if not options.run_only:
        fetch(options.folder)
    if options.dump_only:
        return 0
    report = judge_all(options.folder, read_model)
    if not report.outcomes:
        print(f"{options.folder}/configs holds no configs: run without --run-only first")
        return 2
    if options.json:
        result = {"passed": report.passed, "outcomes": msgspec.to_builtins(report.outcomes)}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(show(report))
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
