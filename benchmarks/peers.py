"""The peers' own kernels as callables, where PEER names a folder of unpacked vLLM 0.33 wheels."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path

import torch
from vllm_stand_in import stand_in_for_vllm


def load_fa3():
    """A maker of FlashAttention-3 calls over a paged batch, None without the library."""
    folder = os.environ.get("PEER")
    if not folder:
        return None
    path = Path(folder, "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so")
    spec = importlib.util.spec_from_file_location("_vllm_fa3_C", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))

    def make(batch):
        operator = torch.ops._vllm_fa3_C.fwd
        absent = [None] * 6
        return lambda: operator(
            batch.query, batch.keys, batch.values, None, None, None, batch.out, batch.starts,
            None, None, None, batch.lengths, batch.queries, batch.length, batch.table, None, None,
            *absent, batch.params.scale, True, -1, -1, 0.0, True, None, 0, None, 0, None, 1, 0,
            None,
        )  # fmt: skip

    return make


def load_fa3_dense():
    """A maker of FlashAttention-3 calls over packed keys and values, None without the library."""
    if load_fa3() is None:
        return None

    def make(prompt):
        operator = torch.ops._vllm_fa3_C.fwd
        absent, length = [None] * 6, prompt.length
        return lambda: operator(
            prompt.query, prompt.keys, prompt.values, None, None, None, prompt.out, prompt.starts,
            prompt.starts, None, None, None, length, length, None, None, None,
            *absent, prompt.scale, True, -1, -1, 0.0, True, None, 0, None, 0, None, 1, 0,
            None,
        )  # fmt: skip

    return make


class FlashMla:
    """FlashMLA's calls over the input sets of a batch; a text where it refuses one."""

    def __init__(self, module):
        self.module = module

    def dense(self, query, cache, tables, length, scale):
        lengths = torch.full((query.shape[0],), length, device=query.device, dtype=torch.int32)

        def call(table, plan):
            return self.module.flash_mla_with_kvcache(
                query[:, None], cache[:, :, None], table, lengths, 512, plan,
                softmax_scale=scale, causal=True,
            )  # fmt: skip

        try:
            plan, _ = self.module.get_mla_metadata()
            call(tables[0], plan)
            torch.cuda.synchronize()
        except Exception as error:  # what it refuses is a fact to report
            return f"{type(error).__name__}: {str(error)[:150]}"
        return [lambda t=t: call(t, plan) for t in tables]

    def sparse(self, listed, scale):
        rows = listed.cache.flatten(0, 1)[:, None]
        calls = [
            lambda s=s: self.module.flash_mla_sparse_fwd(listed.query, rows, s[:, None], scale)
            for s in listed.slots
        ]
        return self._tried(calls)

    def packed(self, listed, scale):
        """Its decoding kernel over rows of 656 bytes, each query token a sequence of its own."""
        plan, _ = self.module.get_mla_metadata()
        rows = listed.cache.view(torch.float8_e4m3fn)[:, :, None]

        def call(slots):
            return self.module.flash_mla_with_kvcache(
                listed.query[:, None], rows, None, None, 512, plan,
                softmax_scale=scale, is_fp8_kvcache=True, indices=slots[:, None],
            )  # fmt: skip

        return self._tried([lambda s=s: call(s) for s in listed.slots])

    def _tried(self, calls):
        try:
            calls[0]()
            torch.cuda.synchronize()
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:150]}"
        return calls


def load_flashmla():
    """FlashMLA of an unpacked vLLM wheel, None without it."""
    folder = os.environ.get("PEER")
    if not folder or not Path(folder, "vllm/_flashmla_C.abi3.so").exists():
        return None
    interface = "vllm.third_party.flashmla.flash_mla_interface"
    if interface not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "_flashmla_C", Path(folder, "vllm/_flashmla_C.abi3.so")
        )
        extension = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(extension)
        for name in ("vllm", "vllm.third_party", "vllm.third_party.flashmla"):
            if name not in sys.modules:
                sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [str(Path(folder, *name.split(".")))]
        sys.modules["vllm._flashmla_C"] = sys.modules["vllm"]._flashmla_C = extension
    return FlashMla(importlib.import_module(interface))


def load_vllm_triton():
    """A maker of calls of vLLM's Triton unified attention, None without it."""
    folder = os.environ.get("PEER")
    if not folder:
        return None
    stand_in_for_vllm(folder)
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention

    def make(batch):
        rows, heads, width = batch.out.shape
        segments = 16
        scratch = {}
        if rows <= 4096:
            for name, last in (("output", (width,)), ("max", ()), ("expsum", ())):
                shape = (rows, heads, segments, *last)
                scratch[f"softmax_segm_{name}"] = torch.empty(shape, device=batch.out.device)
        return lambda: unified_attention(
            q=batch.query,
            k=batch.keys,
            v=batch.values,
            out=batch.out,
            cu_seqlens_q=batch.starts,
            max_seqlen_q=batch.queries,
            seqused_k=batch.lengths,
            max_seqlen_k=batch.length,
            softmax_scale=batch.params.scale,
            causal=True,
            window_size=(-1, -1),
            block_table=batch.table,
            softcap=0.0,
            q_descale=None,
            k_descale=None,
            v_descale=None,
            seq_threshold_3D=128 // batch.keys.shape[2],
            num_par_softmax_segments=segments,
            **{f"softmax_segm_{n}": scratch.get(f"softmax_segm_{n}")
               for n in ("output", "max", "expsum")},
        )  # fmt: skip

    return make
