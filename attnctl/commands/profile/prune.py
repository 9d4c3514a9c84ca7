"""Takes out what can never be used again: timings of changed kernels, and broken entries.

Rewrites the files in place; without a FILE all of your own profiles.
"""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnctl.profile.values import Profile

EXAMPLES = """\b
Examples:
  attnctl profile prune --dry-run
  attnctl profile prune mine.json

\b
Exit codes: 0 pruned, or nothing to prune; 2 a FILE that does not read."""


def command(
    ctx: typer.Context,
    file: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE...]", help="Profiles to rewrite.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and write nothing.")
    ] = False,
) -> None:
    from os import environ
    from pathlib import Path

    from attnctl.exits import InputError
    from attnctl.profile.find import open_found, open_profiles
    from attnctl.profile.hashes import KernelHashes, hashes_of
    from attnctl.profile.live import live
    from attnctl.profile.places import bundled_folder, user_files
    from attnctl.profile.store import rewrite
    from attnctl.registry import load
    from attnctl.render.output import remark

    if file:
        profiles = open_profiles(file, environ)
    else:
        profiles, damaged = open_found(user_files(environ))
        for sentence in damaged:
            remark(sentence)
    registry, hashes = load(), KernelHashes()
    for path, profile in profiles:
        if not dry_run and path not in (file or ()) and Path(path).parent == bundled_folder():
            raise InputError(
                f"{path} is shipped with attnctl, where what is dead of it is passed over: name "
                "the file itself to rewrite it, or add --dry-run"
            )
        kernels = hashes_of(profile, registry, hashes)
        _, dead = live(profile, kernels)
        gone = (*map(str, dead), *profile.bad_entries)
        for sentence in gone:
            ctx.obj.output.text(f"{sentence}\n")
        if gone and not dry_run:
            rewrite(path, _alive(kernels), environ)
        done = "nothing to prune" if not gone else "not written" if dry_run else "pruned"
        ctx.obj.output.text(f"{path}: {done}\n")


def _alive(kernels: dict[str, str]) -> "Callable[[Profile], Profile]":
    """What takes the dead timings out of a profile."""
    from attnctl.profile.live import live

    return lambda profile: live(profile, kernels)[0]
