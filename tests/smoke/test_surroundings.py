"""What surrounds a run of smoke: the working directory, the environment, caches, no compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
ENTRY = "import sys; sys.path[:1] = []; from attnctl.__main__ import main; sys.exit(main())"
"""As the installed program begins: it does not look into the folder that it stands in."""


GONE = f"import os; os.rmdir(os.getcwd()); {ENTRY}"


def smoke(*words: str, here: Path, entry: str = ENTRY, **changes: str) -> Any:
    """The report of `attnctl smoke WORDS --json` in the folder, with the environment changed."""
    line = [sys.executable, "-c", entry, "smoke", *words, "--json"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
    ended = subprocess.run(
        line, cwd=here, env=environ, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


def test_a_file_named_torch_in_the_working_directory_is_not_torch(tmp_path: Path) -> None:
    """Nor are psutil and inspect: a checkout of torch has folders of such names."""
    for name in ("torch.py", "psutil.py", "inspect.py", "numpy.py"):
        (tmp_path / name).write_text("raise RuntimeError('of the working directory')\n")
    case = "paged(queries=1,contexts=5,page=32)"
    report = smoke("--backend", "CPU_ATTN", "--case", case, here=tmp_path)
    assert [trial["status"] for trial in report["backends"][0]["trials"]] == ["pass"]


def test_a_working_directory_that_was_removed_costs_nothing(tmp_path: Path) -> None:
    """The libraries below torch look for their files from there, and end a child without one."""
    here = tmp_path / "gone"
    here.mkdir()
    case = "paged(queries=1,contexts=5,page=32)"
    report = smoke("--backend", "CPU_ATTN", "--case", case, here=here, entry=GONE)
    assert not here.exists()
    assert [trial["status"] for trial in report["backends"][0]["trials"]] == ["pass"]


def test_kernels_compile_where_the_environment_wants_them_interpreted(tmp_path: Path) -> None:
    """And where Triton's cache cannot be written: it gets another one."""
    case = "paged(queries=1,contexts=5)"
    line = ("--backend", "TRITON_ATTN", "--compile-for", "sm_90", "--case", case)
    changes = {"TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": "/dev/null/cache"}
    report = smoke(*line, here=tmp_path, XDG_CACHE_HOME=str(tmp_path), **changes)
    (trial,) = report["backends"][0]["trials"]
    assert trial["status"] == "pass"
    assert [one["kernel"] for one in trial["launches"]] == ["write_cache_kernel", "decode_kernel"]
    assert (tmp_path / "attnctl" / "triton").is_dir()


def test_without_a_compiler_it_is_said_what_computed(tmp_path: Path) -> None:
    """Green is not the C++ kernel's then; the first case of a backend holds the note."""
    case = "paged(queries=1,contexts=5,page=32)"
    changes = {"PATH": str(tmp_path), "CC": "", "XDG_CACHE_HOME": str(tmp_path)}
    report = smoke("--backend", "CPU_ATTN", "--case", case, here=tmp_path, **changes)
    (trial,) = report["backends"][0]["trials"]
    assert trial["status"] == "pass"
    assert trial["note"].startswith("computed in plain torch, not by its C++ kernels: there is no")
