"""What the options --engine, --engine-version and --engine-env of a command ask for."""

from __future__ import annotations

from collections.abc import Sequence


def asked_version(name: str | None, version: str | None, *, implied: bool = False) -> str | None:
    """The version of vLLM's table that counts; None where no engine was asked about.

    implied: another option asks about vLLM. InputError: there is no such engine or table.
    """
    if name is None and version is None and not implied:
        return None
    from attnctl.engines.report import check_engine

    return check_engine("vllm" if name is None else name, version)


def backends_and_environment(
    version: str | None, words: Sequence[str] | None, *, live: bool
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The engine's own backends, and its environment; neither where no engine was asked about.

    The environment is what was said; on this machine (live) also what this process would hand on.
    """
    if version is None:
        return (), {}
    from os import environ

    from attnctl.engines.report import engine_backends
    from attnctl.engines.vllm.environment import read_environment

    return engine_backends(version), read_environment(words or (), environ if live else {})
