"""The Typer app: each command named once, and the one place where errors become messages.

A command's module is imported when the command is called, never before: `--help` costs Typer and
nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from attnctl import __version__
from attnctl.exits import AttnctlError, Exit
from attnctl.nearest import did_you_mean
from attnctl.render.output import Output

# command -> (one line of help, examples); its module is attnctl.commands.<command>
COMMANDS = {
    "probe": "What this machine has, and what is wrong with it.",
    "select": "Which backend serves a model here, and why not the others.",
    "smoke": "Whether each backend's kernels are right on this machine.",
    "list": "What every backend supports, as declared.",
    "explain": "What the code of a reason means, or what a backend needs.",
}

EXAMPLES = """\b
Examples:
  attnctl probe
  attnctl select --model config.json
  attnctl select --model config.json --machine h200 --machine mi300x
  attnctl list TRITON_ATTN
  attnctl explain compute_capability

\b
Exit codes: 0 good; 1 the answer is no; 2 wrong usage or unreadable input."""

HELP_FLAGS = {"help_option_names": ["-h", "--help"]}
INTERRUPTED = 130


class Session:
    """What every command of one run shares: where its answer goes, and how errors are shown."""

    def __init__(self, output: Output, debug: bool) -> None:
        self.output = output
        self.debug = debug


class LazyGroup(TyperGroup):
    """Loads the invoked command's module, and lists the others from the table above."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            ctx.fail(f"No such command {args[0]!r}.{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def _load(name: str) -> Any:
    module = import_module(f"attnctl.commands.{name}")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(
        name, help=module.__doc__, epilog=module.EXAMPLES, context_settings=dict(HELP_FLAGS)
    )(module.command)
    return get_command(app)


def build() -> Any:
    """The whole command line as one command object."""
    app = typer.Typer(
        cls=LazyGroup,
        rich_markup_mode=None,
        no_args_is_help=True,
        context_settings=dict(HELP_FLAGS),
        epilog=EXAMPLES,
    )
    app.callback()(_root)
    return get_command(app)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"attnctl {__version__}")
        raise typer.Exit


def _root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Tracebacks of errors (also ATTNCTL_DEBUG=1).")
    ] = False,
) -> None:
    """Which attention backend runs on this machine, why, and why not the others."""
    ctx.obj.debug = debug or ctx.obj.debug


def run(args: Sequence[str] | None = None, output: Output | None = None) -> int:
    """Runs one command line and gives its exit code; every error becomes a message here."""
    debug = os.environ.get("ATTNCTL_DEBUG", "") not in ("", "0")
    session = Session(output or Output(), debug)
    arguments = None if args is None else list(args)
    try:
        build().main(args=arguments, prog_name="attnctl", obj=session)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else Exit.OK
    except AttnctlError as error:
        return _complain(str(error), error, session.debug)
    except Exception as error:
        text = (
            f"this is a bug in attnctl ({type(error).__name__}: {error}); please report it with "
            "the command line and a tape from: attnctl probe --record FILE"
        )
        return _complain(text, error, session.debug)
    return Exit.OK


def _complain(text: str, error: BaseException, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exception(error)
    print(f"attnctl: {' '.join(text.split())}", file=sys.stderr)
    return error.exit_code if isinstance(error, AttnctlError) else Exit.USAGE
