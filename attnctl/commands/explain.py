"""What the code of a reason means, or what a backend needs.

A code is what `attnctl select` and `attnctl probe` print beside a reason or a finding. Without one
every code is listed with its title.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.nearest import did_you_mean
from attnctl.parameters import subjects

if TYPE_CHECKING:
    from attnctl.render.output import Output
    from attnctl.support.table import Matrix

EXAMPLES = """\b
Examples:
  attnctl explain
  attnctl explain compute_capability
  attnctl explain FLASHMLA
  attnctl explain --markdown > codes.md

\b
Exit codes: 0 explained; 2 no code or backend of that name."""


def command(
    ctx: typer.Context,
    subject: Annotated[
        str | None,
        typer.Argument(metavar="[CODE|BACKEND]", autocompletion=subjects, help="What to explain."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Every code, as the page of the docs.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    output: Output = ctx.obj.output
    if markdown and (json or subject is not None):
        other = "--json" if json else subject
        raise typer.BadParameter(f"--markdown is every code as one page: leave out {other}")
    if subject is None:
        _every_code(output, markdown, json)
        return
    from attnctl.codes import meaning
    from attnctl.render.support import backend_view, meaning_view

    found = meaning(subject.strip())
    if found is None:
        table = _backend(subject)  # as declared: what is here, `attnctl list NAME` tells
        output.json(table) if json else output.view(backend_view(table))
    else:
        output.json(found) if json else output.view(meaning_view(found))


def _every_code(output: "Output", markdown: bool, json: bool) -> None:
    from attnctl import codes

    if markdown:
        output.text(codes.markdown())
    elif json:
        output.json(codes.meanings())
    else:
        from attnctl.render.support import codes_view

        output.view(codes_view())


def _backend(subject: str) -> "Matrix":
    """The matrix of the one backend of that name; InputError where it is neither code nor name."""
    from attnctl.codes import near
    from attnctl.exits import InputError
    from attnctl.registry import load
    from attnctl.support.backend import support_of

    registry = load()
    try:
        return support_of(subject, registry)
    except InputError:
        names = (*near(subject), *(backend.name for backend in registry.backends))
        hint = did_you_mean(subject, names) or " All codes: attnctl explain"
        raise InputError(f"{subject}: no code and no backend of that name.{hint}") from None
