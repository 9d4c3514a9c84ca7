"""Samba hybrids: Mamba and attention in turns; the second half of a SambaY reads the first's KV."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from attnctl.model import states, windows
from attnctl.model.attention import attention_of, depth_of
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.variation import Slot


def phi4flash(config: Config) -> tuple[LayerGroup, ...]:
    """Phi-4-mini-flash: Mamba on every second layer, its attention differential.

    The first half slides; one full layer behind it owns the KV that all later ones read, and the
    Mamba layers among these are gates without a state.
    """
    text = config.text
    depth, step = depth_of(text).value, step_of(text, "mb_per_layer")
    own = depth // 2 + 1
    slots, shared = [], {}
    for layer in range(depth):
        if step and layer % step.value == 0:
            slots.append(Slot("mamba" if layer < own else "none"))
        elif layer < own:
            slots.append(Slot("sliding" if layer < depth // 2 else "full"))
        elif layer == own:
            slots.append(Slot("full"))
        else:
            slots.append(Slot("full", shared=True))
            shared[layer] = own
    full, state = _differential(attention_of(text)), states.mamba1(text)
    window = windows.window_of(text)

    def of_slot(slot: Slot) -> Sequence[LayerGroup]:
        if slot.name == "mamba":
            return [state]
        if slot.name == "none":
            return [LayerGroup(kind="none", layers=())]
        return [windows.slid(full, window, text) if slot.name == "sliding" and window else full]

    return assemble(slots, of_slot, shared)


def step_of(text: Keys, key: str) -> Value[int] | None:
    """Layers in a group; None where the file switches Mamba off."""
    if text.is_false("mamba_enabled") or text.data.get(key) == 0:
        return None
    return text.count(key) or Value(2, f"two where no {key} is stated")


def _differential(layer: LayerGroup) -> LayerGroup:
    notes = {**layer.notes, "differential": "two softmaxes, one taken off the other"}
    return msgspec.structs.replace(layer, notes=notes)
