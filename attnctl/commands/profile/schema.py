"""The JSON Schema of a profile, as docs/schema publishes it."""

import typer

EXAMPLES = """\b
Examples:
  attnctl profile schema
  attnctl profile schema > profile.schema.json

\b
Exit codes: 0 printed."""


def command(ctx: typer.Context) -> None:
    from attnctl.documents.schema import json_schema
    from attnctl.profile.values import Document

    ctx.obj.output.text(json_schema("profile", Document).decode())
