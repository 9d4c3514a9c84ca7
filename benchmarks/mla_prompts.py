"""The uncompressed form: prompts of one length, without a context before them."""

from __future__ import annotations

from itertools import product

import torch
from gpu_times import GPU, compile_all, graph_ms, turns_ms
from mla_batches import drawn, error_of, launch_all, poisoned
from peers import load_fa3_dense
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnctl.kernels.triton.latent.prefill_call import prefill_attend, prefill_launch
from attnctl.kernels.triton.relaunch import Relaunches
from attnctl.runtime import Metadata


class Prompt:
    """Packed queries, keys and values of DeepSeek's uncompressed form."""

    def __init__(self, sequences, length, heads=128):
        self.sequences, self.length, self.heads = sequences, length, heads
        tokens = sequences * length
        self.query, self.keys = drawn(tokens, heads, 192), drawn(tokens, heads, 192)
        self.values = drawn(tokens, heads, 128)
        self.out = poisoned(tokens, heads, 128)
        self.lse = torch.empty(tokens, heads, device=GPU)
        self.starts = torch.arange(0, tokens + 1, length, device=GPU).int()
        self.metadata = Metadata(
            query_start_loc=self.starts,
            seq_lens=torch.full((sequences,), length, device=GPU, dtype=torch.int32),
            block_table=self.starts[None],
            slot_mapping=self.starts,
            max_query_len=length,
            max_seq_len=length,
        )
        self.scale = 192**-0.5
        self.flops = sequences * heads * length * length * (192 + 128)
        self.bytes = tokens * heads * 2 * (192 + 192 + 128 + 128)
        self.kept = Relaunches()

    def attend(self):
        """As a runtime's layers launch it."""
        prefill_attend(
            self.query, self.keys, self.values, self.starts, self.metadata, self.scale,
            causal=True, max_keys=self.length, kept=self.kept,
        )  # fmt: skip

    def launch(self, tiles=None, **more):
        factor = self.scale * 1.4426950408889634
        return prefill_launch(
            self.query, self.keys, self.values, self.starts, self.metadata, factor, True,
            self.out, self.lse, tiles=tiles, **more,
        )  # fmt: skip

    def error(self, launch):
        self.out.fill_(torch.nan)
        launch_all([launch])
        worst = 0.0
        for token in (0, 1, self.length // 2 + 3, self.sequences * self.length - 1):
            first = token // self.length * self.length
            for head in (0, self.heads - 1):
                keys = self.keys[first : token + 1, head].double()
                logits = keys @ self.query[token, head].double() * self.scale
                values = self.values[first : token + 1, head].double()
                error = error_of(self.out[token, head], torch.softmax(logits, 0) @ values)
                worst = error if error != error else max(worst, error)
        return worst

    def sdpa(self):
        """torch's attention by the fastest of its backends in a graph, its own choice if near."""
        calls = {backend: self.sdpa_by(backend) for backend in (None, *BACKENDS)}
        times = {backend: graph_ms([call] * 4, replays=3) for backend, call in calls.items()}
        times = {backend: ms for backend, ms in times.items() if isinstance(ms, float)}
        best = min(times, key=times.__getitem__)
        # naming a backend costs the host time
        return calls[None if times[None] < 1.01 * times[best] else best]

    def sdpa_by(self, backend):
        shape = (self.sequences, self.length, self.heads)
        q, k, v = (
            x.view(*shape, x.shape[2]).transpose(1, 2) for x in (self.query, self.keys, self.values)
        )

        def plain():
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=self.scale
            )

        def named():
            with sdpa_kernel(backend):
                return plain()

        return plain if backend is None else named


BACKENDS = (SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION)

PROMPTS = (
    *((1, 4096, 128), (1, 8192, 128), (1, 16384, 32), (8, 1024, 128), (4, 2048, 128)),
    *((16, 512, 128), (32, 256, 128), (64, 128, 128), (1, 8192, 16), (8, 1024, 16), (16, 512, 16)),
)

SHORT = tuple(product((8, 24, 64), (17, 64, 100, 128, 200, 256, 300), (128, 16)))


def short(found):
    """Prompts of one to three tiles, which are bound by memory and by what a unit costs."""
    prefill(found, SHORT, "short")


def prefill(found, shapes=PROMPTS, group="prefill"):
    fa3 = load_fa3_dense()
    for sequences, length, heads in shapes:
        prompt = Prompt(sequences, length, heads)
        launch, portable = prompt.launch(), prompt.launch(groups=False)
        compile_all([launch, *([portable] if group == "prefill" else [])])
        calls = {"ours": prompt.attend, "sdpa": prompt.sdpa()}
        if fa3 is not None:
            calls["fa3"] = fa3(prompt)
        values = {"ours": 0.0, "floor": found.floor_ms(prompt.bytes, prompt.flops)}
        values |= {"error": prompt.error(launch)}
        others = {"portable": lambda w=portable: launch_all([w])} if group == "prefill" else {}
        values |= turns_ms({**calls, **others})
        values |= {f"{name} graph": graph_ms([call] * 4) for name, call in calls.items()}
        plan = f"{launch.kernel.__name__} w{launch.constants['num_warps']}"
        found.add(group, f"B{sequences} S{length} h{heads}", **values, plan=plan)
        del prompt, launch, portable, calls
        torch.cuda.empty_cache()
