"""What torch itself runs on a processor, against what the registry says of it."""

from __future__ import annotations

import torch
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.attention import SDPBackend

import attnctl
from attnctl.machines.assumed import assume
from attnctl.registry import load
from tests.commands.running import LLAMA


def test_fused_attention_runs_on_a_processor_whatever_the_gpu_question_answers() -> None:
    """The registry agrees with what runs, not with can_use_flash_attention, which asks of CUDA."""
    query = torch.zeros(1, 8, 32, 64)
    key = value = torch.zeros(1, 2, 32, 64)
    asked = SDPAParams(query, key, value, None, 0.0, True, True)
    assert not can_use_flash_attention(asked, False)
    chosen = torch._fused_sdp_choice(query, key, value, None, 0.0, True, enable_gqa=True)
    assert chosen == SDPBackend.FLASH_ATTENTION.value
    registry = load()
    machine = assume(attnctl.probe(), "torch", registry).machine
    if machine.platform == "cpu":
        decisions = attnctl.select_model(attnctl.read_model(LLAMA), machine, registry)
        assert [decision.pick.name for decision in decisions if decision.pick] == ["CPU_ATTN"]
