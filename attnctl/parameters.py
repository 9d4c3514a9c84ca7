"""Options that several commands take in the same words, and what a shell completes values with.

Each function returns the names that begin as typed, of those that are known without asking the
machine; where none does, the shell goes on to files.
"""

from typing import Annotated

import typer


def machines(incomplete: str) -> list[str]:
    """Names of bundled machines."""
    from attnctl.machines import names

    return [name for name in names() if name.startswith(incomplete)]


def backends(incomplete: str) -> list[str]:
    """Names of backends; a KIND= before one stays."""
    from attnctl.registry import load

    kind, equals, begun = incomplete.rpartition("=")
    names = sorted(backend.name for backend in load().backends)
    return [f"{kind}{equals}{name}" for name in names if name.startswith(begun)]


def operations(incomplete: str) -> list[str]:
    """Names of operations."""
    from attnctl.registry import load

    names = sorted({op for backend in load().backends for op in backend.ops})
    return [name for name in names if name.startswith(incomplete)]


def workloads(incomplete: str) -> list[str]:
    """Names of the grids of `attnctl tune`."""
    from attnctl.tune.workload import WORKLOADS

    return [name for name in WORKLOADS if name.startswith(incomplete)]


def profiles(incomplete: str) -> list[str]:
    """Names of one's own profiles and of the bundled ones."""
    from os import environ

    from attnctl.profile.find import known_files

    names = dict.fromkeys(path.stem for path in known_files(environ))
    return [name for name in names if name.startswith(incomplete)]


def subjects(incomplete: str) -> list[str]:
    """What `attnctl explain` explains: codes and backends."""
    from attnctl.codes import TABLE

    codes = [code for code in TABLE if "*" not in code and code.startswith(incomplete)]
    return [*codes, *backends(incomplete)]


OtherMachine = Annotated[
    str | None,
    typer.Option(
        "--machine", metavar="NAME|FILE", autocompletion=machines, help="Another machine."
    ),
]
WhoseMachine = Annotated[
    str | None,
    typer.Option(
        "--machine", metavar="NAME|FILE", autocompletion=machines, help="Another machine's."
    ),
]
Device = Annotated[int, typer.Option("--device", metavar="N", help="Logical index of the device.")]
Dtype = Annotated[str | None, typer.Option("--dtype", metavar="DTYPE", help="Compute dtype.")]
KvCacheDtype = Annotated[
    str, typer.Option("--kv-cache-dtype", metavar="DTYPE", help="Dtype of the KV cache.")
]
Ranks = Annotated[int, typer.Option("--tp", metavar="RANKS", help="Tensor-parallel ranks.")]
