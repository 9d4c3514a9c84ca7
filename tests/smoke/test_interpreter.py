"""Triton's interpreter where NumPy is not installed, or is one that it does not go with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_an_interpreter_without_numpy_is_one_sentence() -> None:
    """Triton's interpreter needs it, and torch and Triton are installed without it."""
    text = (
        "import sys; sys.modules['numpy'] = None; from attnctl.smoke.worker import main;"
        "sys.exit(main(['TRITON_ATTN', 'interpret']))"
    )
    words = [sys.executable, "-c", text]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "NumPy, which is not installed: pip install numpy" in ended.stdout


def test_an_interpreter_that_computes_nothing_is_one_sentence_and_no_fault_of_a_kernel() -> None:
    """Releases of Triton and NumPy that do not go together; here one of its loads is taken away."""
    text = (
        "import os, sys; os.environ['TRITON_INTERPRET'] = '1';"
        "from triton.runtime import interpreter;"
        "interpreter.interpreter_builder.create_masked_load = None;"
        "from attnctl.smoke.worker import main; sys.exit(main(['TRITON_ATTN', 'interpret']))"
    )
    words = [sys.executable, "-c", text]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, input="x")
    (line,) = ended.stdout.splitlines()
    assert '"ok":false' in line
    assert "the interpreter of Triton" in line
    assert "does not work with NumPy" in line
