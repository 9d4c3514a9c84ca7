"""How many states an encoder hands to the cross-attention of its decoder, where the file says."""

from __future__ import annotations

from attnctl.model.attention import MAX_POSITION, max_position_of
from attnctl.model.keys import Keys, Value

# one table of positions serves both stacks (transformers sizes the encoder's by the same key)
_SHARED = frozenset(
    {"bart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "mvp", "nllb-moe"}
    | {"pegasus", "pegasus_x", "plbart", "prophetnet", "bigbird_pegasus"}
)
_OWN = {
    "whisper": "max_source_positions",  # frames behind the strided convolution
    "led": "max_encoder_position_embeddings",
}


def encoder_length_of(text: Keys) -> Value[int] | None:
    """The longest sequence of encoder states; None where the file does not bound it."""
    kind = text.model_type or ""
    if kind in _OWN:
        return text.count(_OWN[kind])
    return max_position_of(text) if kind in _SHARED and text.has(*MAX_POSITION) else None
