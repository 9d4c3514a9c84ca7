"""Phi-3-small: block-sparse attention, with a dense layer at the end of each group."""

from __future__ import annotations

import msgspec

from attnctl.model.attention import attention_of, depth_of
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup

_PATTERN = {
    "block_size": "blocksparse_block_size",
    "num_local_blocks": "blocksparse_num_local_blocks",
    "vert_stride": "blocksparse_vert_stride",
}


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Full attention on the last of each dense_attention_every_n_layers, block-sparse elsewhere."""
    text = config.text
    full = attention_of(text)
    sparse = msgspec.structs.replace(full, kind="blocksparse", notes=_pattern(text))
    every = text.count("dense_attention_every_n_layers")
    names = ["full" if every and (i + 1) % every.value == 0 else "blocksparse"
             for i in range(depth_of(text).value)]  # fmt: skip
    source = every.source if every else "no dense_attention_every_n_layers"

    def of_name(name: str) -> list[LayerGroup]:
        group = full if name == "full" else sparse
        return [msgspec.structs.replace(group, sources={**group.sources, "kind": source})]

    return assemble(names, of_name)


def _pattern(text: Keys) -> dict[str, int]:
    given = {name: text.count(key) for name, key in _PATTERN.items()}
    return {name: value.value for name, value in given.items() if value is not None}
