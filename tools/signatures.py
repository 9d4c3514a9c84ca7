"""Writes the parameters of the functions that adapters call, read from unpacked packages.

Usage: tools/signatures.py FOLDER > tests/adapters/signatures.json
FOLDER holds a folder for each package with what `pip download --no-deps` brought, unpacked: nothing
of it is imported or run. What is in no release yet comes from the repository: a folder of the name
below with the file and a METADATA that names it and the commit.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

WANTED = (
    ("flash-attn", "flash_attn/flash_attn_interface.py", "flash_attn_varlen_func"),
    ("flash-attn", "hopper/flash_attn_interface.py", "flash_attn_with_kvcache"),
    ("flash-attn-4", "flash_attn/cute/interface.py", "flash_attn_varlen_func"),
    ("vllm", "vllm/vllm_flash_attn/flash_attn_interface.py", "flash_attn_varlen_func"),
    ("vllm", "vllm/v1/attention/ops/prefix_prefill.py", "context_attention_fwd"),
    ("amd-aiter", "aiter/ops/mha.py", "mha_batch_prefill_func"),
    ("amd-aiter", "aiter/ops/triton/unified_attention.py", "unified_attention"),
    ("flashinfer-python", "flashinfer/gdn_prefill.py", "chunk_gated_delta_rule"),
    *(
        ("fla-core", f"fla/ops/{name}/{form}.py", f"{form}_{name}")
        for name in ("gated_delta_rule", "kda", "simple_gla")
        for form in ("chunk", "fused_recurrent")
    ),
    *(
        ("mamba-ssm", f"mamba_ssm/ops/{file}.py", name)
        for file, name in (
            ("triton/selective_state_update", "selective_state_update"),
            ("triton/ssd_combined", "mamba_chunk_scan_combined"),
            ("selective_scan_interface", "selective_scan_fn"),
        )
    ),
    *(
        ("causal-conv1d", "causal_conv1d/causal_conv1d_interface.py", f"causal_conv1d_{form}")
        for form in ("fn", "update")
    ),
    *(
        ("vllm", "vllm/third_party/flashmla/flash_mla_interface.py", name)
        for name in ("get_mla_metadata", "flash_mla_with_kvcache", "flash_mla_sparse_fwd")
    ),
    *(
        ("flash-mla", "flash_mla/flash_mla_interface.py", name)
        for name in ("get_mla_metadata", "flash_mla_with_kvcache", "flash_mla_sparse_fwd")
    ),
    ("vllm", "vllm/v1/attention/ops/flashmla.py", "get_mla_metadata_dense_fp8"),
    ("vllm", "vllm/v1/attention/ops/flashmla.py", "flash_mla_with_kvcache_fp8"),
    ("flashinfer-python", "flashinfer/mla/_core.py", "trtllm_batch_decode_with_kv_cache_mla"),
    ("amd-aiter", "aiter/mla.py", "mla_decode_fwd"),
    ("aiter", "aiter/mla.py", "mla_decode_fwd"),
    ("vllm-xpu-kernels", "vllm_xpu_kernels/flash_attn_interface.py", "flash_attn_varlen_func"),
    ("vllm-xpu-source", "vllm_xpu_kernels/flash_mla_interface.py", "flash_mla_sparse_fwd"),
    *(
        ("flashinfer-python", f"flashinfer/{file}.py", f"{name}.{method}")
        for file, name, methods in (
            ("prefill", "BatchPrefillWithPagedKVCacheWrapper", ("__init__", "plan", "run")),
            ("decode", "BatchDecodeWithPagedKVCacheWrapper", ("__init__", "_plan_impl", "run")),
        )
        for method in methods
    ),
)


def main(folder: Path) -> None:
    facts = []
    for package, path, name in WANTED:
        source = next((folder / package).rglob(path))
        facts.append(
            {
                "package": package,
                "version": _version(folder / package, package),
                "file": path,
                "function": name,
                "parameters": parameters(source.read_text(), name),
            }
        )
    lines = (json.dumps(fact) for fact in facts)
    print("[\n" + ",\n".join(lines) + "\n]")


def parameters(source: str, name: str) -> list[list[str]]:
    """Name, kind, and the default's source where there is one, of each parameter but self."""
    function = _function(ast.parse(source), name)
    every = function.args
    plain = [*every.posonlyargs, *every.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(every.defaults))
    rows = [_row(a, "either", d) for a, d in zip(plain, defaults + every.defaults, strict=True)]
    if every.vararg:
        rows.append([every.vararg.arg, "rest"])
    rows += [
        _row(a, "keyword", d) for a, d in zip(every.kwonlyargs, every.kw_defaults, strict=True)
    ]
    if every.kwarg:
        rows.append([every.kwarg.arg, "keywords"])
    return [row for row in rows if row[0] != "self"]


def _row(argument: ast.arg, kind: str, default: ast.expr | None) -> list[str]:
    row = [argument.arg, kind]
    return row if default is None else [*row, ast.unparse(default)]


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    body: list[ast.stmt] = tree.body
    *owners, last = name.split(".")
    for owner in owners:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == owner).body
    # the last of the same name is the one that runs; those before it are overloads
    return [n for n in body if isinstance(n, ast.FunctionDef) and n.name == last][-1]


def _version(folder: Path, package: str) -> str:
    for found in _metadata(folder):
        lines = found.read_text(errors="replace").splitlines()
        if f"Name: {package}" in lines or f"Name: {package.replace('-', '_')}" in lines:
            return next(x.split(": ")[1] for x in lines if x.startswith("Version: "))
    raise SystemExit(f"{package}: no METADATA or PKG-INFO under {folder}")


def _metadata(folder: Path) -> Iterator[Path]:
    yield from folder.rglob("METADATA")
    yield from folder.rglob("PKG-INFO")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
