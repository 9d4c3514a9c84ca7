"""The rows of a benchmark of latent attention, printed and written as they come."""

from __future__ import annotations

import json
import os
from pathlib import Path

from gpu_times import Ceilings


class Rows:
    """The results, printed and written as they come."""

    def __init__(self):
        self.rows = []
        self.floor_ms = Ceilings().floor_ms

    def add(self, group, shape, **values):
        row = {"group": group, "shape": shape, **values}
        self.rows.append(
            {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
        )
        ours, parts = values.get("ours"), [f"{group:8s} {shape:26s}"]
        for name, value in values.items():
            if isinstance(value, float):
                parts.append(f"{name} {value:.4g}")
                if name not in ("ours", "error") and isinstance(ours, float):
                    parts[-1] += f" ({value / ours:.2f}x)"
            else:
                parts.append(f"{name}: {value}")
        print(" ".join(parts), flush=True)
        self.save()

    def save(self):
        if "OUT" in os.environ:
            text = json.dumps(self.rows, indent=0)
            Path(os.environ["OUT"], f"mla_gpu{os.environ.get('TAG', '')}.json").write_text(text)


def plan_of(launches):
    c = launches[0].constants
    return (
        f"{launches[0].kernel.__name__} {c.get('BLOCK_M', 64)}x{c.get('TILE', 64)} "
        f"w{c['num_warps']} s{c.get('num_stages', 2)} grid{launches[0].grid}"
    )
