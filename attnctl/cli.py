"""The Typer app: each command named once, and the one place where errors become messages.

A command's module is imported when the command is called, never before: `--help` costs Typer and
nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from attnctl import __version__
from attnctl.exits import AttnctlError, Exit
from attnctl.render.output import Output, remark, to_stderr

# command -> one line of help; its module is attnctl.commands.<command>
COMMANDS = {
    "probe": "What this machine has, and what is wrong with it.",
    "select": "Which backend serves a model here, and why not the others.",
    "smoke": "Whether each backend's kernels are right on this machine.",
    "tune": "Which backend and settings are fastest here, as a profile.",
    "warm": "Compiles ahead what a profile names, so that no request waits.",
    "profile": "Profiles of timings: exchanged, shown, compared, checked.",
    "list": "What every backend supports, as declared.",
    "report": "An archive for a bug report, without names and tokens.",
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
# typer exports the leaves of click's usage errors, and their parent under no name
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Session:
    """What every command of one run shares: where its answer goes, and how errors are shown."""

    output: Output

    def __init__(self, debug: bool) -> None:
        self.debug = debug


class Strict:
    """A command whose help goes where its answer would, and that takes no empty value."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.callback = _show_help
        return option

    def invoke(self, ctx: Any) -> Any:
        for param in ctx.command.params:
            given = ctx.params.get(param.name)
            if given == "" or (isinstance(given, list | tuple) and "" in given):
                name = (
                    param.opts[0]
                    if param.param_type_name == "option"
                    else param.metavar.strip("[]")
                )
                ctx.fail(f"The value of {name} is empty: name something, or leave it out.")
        return super().invoke(ctx)  # type: ignore[misc]


class Command(Strict, TyperCommand):
    """One verb."""

    def invoke(self, ctx: Any) -> Any:
        from attnctl.commands import load_msgspec

        load_msgspec()
        return super().invoke(ctx)


class LazyGroup(Strict, TyperGroup):
    """Loads the invoked command's module, and lists the others from a table.

    verbs: command -> one line of help; package: where their modules are.
    """

    verbs = COMMANDS
    package = "attnctl.commands"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # a shell that asks what may follow
            to_stderr(_help(ctx))
            ctx.exit(Exit.USAGE)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _load(self.package, cmd_name) if cmd_name in self.verbs else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.verbs:
            from attnctl.nearest import did_you_mean

            ctx.fail(f"No such command {args[0]!r}.{did_you_mean(args[0], self.verbs)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.verbs.items()))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None


def _load(package: str, name: str) -> Any:
    """The command of a module, or the group whose verbs a package lists in VERBS."""
    # a module cannot be imported by a statement where its name is a word of Python
    module = import_module(f"{package}.{name}_" if iskeyword(name) else f"{package}.{name}")
    verbs = getattr(module, "VERBS", None)
    if verbs is not None:
        kind = type("Verbs", (LazyGroup,), {"verbs": verbs, "package": module.__name__})
        return _group(kind, module.__doc__, module.EXAMPLES, _no_options)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(
        name,
        cls=Command,
        help=module.__doc__,
        epilog=module.EXAMPLES,
        context_settings=dict(HELP_FLAGS),
    )(module.command)
    return get_command(app)


def _group(kind: type[LazyGroup], text: str | None, epilog: str, root: Callable[..., None]) -> Any:
    app = typer.Typer(
        cls=kind,
        help=text,
        add_completion=kind is LazyGroup,
        rich_markup_mode=None,
        context_settings=dict(HELP_FLAGS),
        epilog=epilog,
    )
    app.callback()(root)
    return get_command(app)


def _no_options() -> None:
    pass


def build() -> Any:
    """The whole command line as one command object."""
    return _group(LazyGroup, _root.__doc__, EXAMPLES, _root)


def _show_help(ctx: Any, param: Any, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.obj.output.text(_help(ctx))
        ctx.exit()


def _help(ctx: Any) -> str:
    from attnctl.render.help import help_text

    return help_text(ctx) + "\n"


def _show_version(ctx: typer.Context, value: bool) -> None:
    if value:
        ctx.obj.output.text(f"attnctl {__version__}\n")
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


def run(
    args: Sequence[str] | None = None, output: Output | None = None, app: Any | None = None
) -> int:
    """Runs one command line and gives its exit code; every error becomes a message here.

    app: what build() gave, where many lines are run.
    """
    session = Session(os.environ.get("ATTNCTL_DEBUG", "") not in ("", "0"))
    try:
        session.output = output or Output()
        code = (app or build()).main(
            args=None if args is None else list(args),
            prog_name="attnctl",
            obj=session,
            standalone_mode=False,
        )
    except SystemExit as exit_:  # a signal that ended smoke, or typer's own
        code = exit_.code
    except AttnctlError as error:
        return _complain(str(error), error, session.debug)
    except UsageError as error:
        return _complain(_usage(error), error, session.debug)
    except Exception as error:
        text = (
            f"this is a bug in attnctl ({type(error).__name__}: {error}); please report it with "
            "the command line and the archive that this writes: attnctl report"
        )
        return _complain(text, error, session.debug)
    return code if isinstance(code, int) else Exit.OK


def _usage(error: Any) -> str:
    """Typer's words for wrong usage in one sentence, and where the right one is shown."""
    command = error.ctx.command_path if error.ctx else "attnctl"
    text = error.format_message().strip()
    end = "" if text.endswith((".", "?")) else "."
    return f"{text}{end} See: {command} --help"


def _complain(text: str, error: Exception, debug: bool) -> int:
    if debug:
        import traceback

        to_stderr("".join(traceback.format_exception(error)))
    remark(text)
    return error.exit_code if isinstance(error, AttnctlError) else Exit.USAGE
