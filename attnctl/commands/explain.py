"""What the code of a reason means, or what a backend needs.

A code is what `attnctl select` and `attnctl probe` print beside a reason or a finding.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.nearest import did_you_mean

if TYPE_CHECKING:
    from attnctl.matrix import Matrix

EXAMPLES = """\b
Examples:
  attnctl explain compute_capability
  attnctl explain FLASHMLA

\b
Exit codes: 0 explained; 2 no code or backend of that name."""


def command(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="CODE|BACKEND", help="What to explain.")],
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    from attnctl.codes import meaning
    from attnctl.render.support import backend_view, meaning_view

    found = meaning(subject.strip())
    output = ctx.obj.output
    if found is None:
        table = _backend(subject)  # as declared: what is here, `attnctl list NAME` tells
        output.json(table) if json else output.view(backend_view(table))
    else:
        output.json(found) if json else output.view(meaning_view(found))


def _backend(subject: str) -> "Matrix":
    """The matrix of the one backend of that name; InputError where it is neither code nor name."""
    from attnctl.codes import near
    from attnctl.exits import InputError
    from attnctl.registry import load
    from attnctl.support import support_of

    registry = load()
    try:
        return support_of(subject, registry)
    except InputError:
        names = (*near(subject), *(backend.name for backend in registry.backends))
        hint = did_you_mean(subject, names) or " Codes stand beside the reasons of: attnctl select"
        raise InputError(f"{subject}: no code and no backend of that name.{hint}") from None
