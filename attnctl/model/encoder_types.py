"""Which function reads which encoder or encoder-decoder; the same form as families.py."""

from __future__ import annotations

from attnctl.model.nesting import Config

ENCODERS: dict[str, tuple[str, ...]] = {
    "encoders:encoder_only": (
        "bert",
        "roberta",
        "xlm-roberta",
        "camembert",
        "electra",
        "distilbert",
        "albert",
        "mpnet",
        "nomic_bert",
    ),
    "encoders:encoder_decoder": (
        "bart",
        "mbart",
        "t5",
        "mt5",
        "umt5",
        "pegasus",
        "marian",
        "m2m_100",
        "blenderbot",
        "whisper",
    ),
}


def generic_home(config: Config) -> str | None:
    """Where a type that no table lists is read, if its keys say that it is no plain decoder."""
    if config.text.is_true("is_encoder_decoder"):
        return "encoders:encoder_decoder"
    return None
