"""Triton's interpreter where NumPy is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_an_interpreter_without_numpy_is_one_sentence() -> None:
    """Triton's interpreter needs it, and torch and Triton are installed without it."""
    text = (
        "import sys; sys.modules['numpy'] = None; from attnctl.worker import main;"
        "sys.exit(main(['TRITON_ATTN', 'interpret']))"
    )
    words = [sys.executable, "-c", text]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "NumPy, which is not installed: pip install numpy" in ended.stdout
