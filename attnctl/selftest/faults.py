"""The planted faults by name: what is wrong, and the cases that must show it. No torch.

Each is planted by the function of its name in attnctl.selftest.<module>, into a copy of the
kernel's algorithm in plain torch or into what a processor's kernel is given and gives. A fault is
caught where its sound twin passes a case and it does not.
"""

from __future__ import annotations

from typing import NamedTuple

_CHUNKED = "queries=16+5,contexts=49+70,page=32"
_DECODE = "queries=1+1+1,contexts=1+47+130,page=32"
_PREFILL = "queries=33+1+17,contexts=33+1+17,page=32"
_VERIFY = "initial=all,queries=4+4,drafts=3,accepted=1+3"


class Fault(NamedTuple):
    """module: of attnctl.selftest, where the function `name` plants it."""

    name: str
    module: str
    what: str
    cases: tuple[str, ...]


def _paged(name: str, what: str, *cases: str) -> Fault:
    return Fault(name, "paged", what, tuple(f"paged({case})" for case in cases))


def _state(name: str, what: str, *cases: str) -> Fault:
    return Fault(name, "states", what, cases)


def _latent(name: str, what: str, *cases: str) -> Fault:
    return Fault(name, "latent", what, cases)


FAULTS = (
    _paged("window_one_less", "the window ends a token early", f"{_CHUNKED},window=7"),
    _paged("window_one_more", "the window ends a token late", f"{_DECODE},window=7"),
    _paged("window_right_ignored", "a two-sided window has no right side",
           f"{_PREFILL},causal=false,window=6,window_right=5"),
    _paged("chunk_from_the_query", "chunks are counted from each query, not from the sequence",
           f"{_CHUNKED},chunk=24"),
    _paged("sink_dropped", "attention sinks are left out", f"{_DECODE},sinks=true"),
    _paged("sink_in_every_tile", "the sink counts once for each tile", f"{_DECODE},sinks=true"),
    _paged("softcap_dropped", "logits are not capped", f"{_CHUNKED},softcap=5.0"),
    _paged("softcap_before_scale", "logits are capped before they are scaled",
           f"{_CHUNKED},softcap=5.0"),
    _paged("alibi_reversed", "ALiBi's slopes belong to other heads", f"{_DECODE},alibi=true"),
    _paged("ranges_ignored", "bidirectional ranges are read as causal", f"{_PREFILL},ranges=true"),
    _paged("causal_from_the_top", "a chunk's queries stand at the start of the context", _CHUNKED),
    _paged("causal_off_by_one", "a token does not see itself", _PREFILL),
    _paged("no_rescale", "the running sum is not rescaled when a larger logit comes", _DECODE),
    _paged("no_maximum", "exponents are taken without their maximum", f"{_DECODE},sharp=true"),
    _paged("last_tile_dropped", "the last tile of the context is left out", _DECODE),
    _paged("tail_not_masked", "the last page's free slots are read", _DECODE),
    _paged("masked_values_read", "0 times the NaN of a masked value",
           f"{_CHUNKED},window=7,poison=true"),
    _paged("heads_interleaved", "query head h reads KV head h modulo their number", _CHUNKED),
    _paged("keys_for_values", "K is read where V lies", _DECODE),
    _paged("pages_in_order", "the block table is not read", _CHUNKED),
    _paged("narrow_offset", "an offset into the cache wraps around", _CHUNKED),
    _paged("scale_ignored", "an FP8 cache is read without its scale",
           f"{_DECODE},kv_cache_dtype=fp8_e4m3,dtype=bfloat16"),
    _paged("half_precision_sum", "float32 is summed up in bfloat16", _DECODE),
    _paged("last_row_unwritten", "the last row of the output is never written", _CHUNKED),
    _paged("row_past_the_end", "a row behind the output is written", _CHUNKED),
    _paged("padding_written", "rows of no sequence are written", f"{_DECODE},padding=2"),
    _paged("sequences_swapped", "each sequence reads its neighbour's context", _DECODE),
    _paged("slot_minus_one_written", "a token of slot -1 is stored", f"{_DECODE},padding=2"),
    _paged("slots_shifted", "tokens are stored a slot late", _CHUNKED),
    _paged("crashes", "the process dies", _DECODE),
    _paged("hangs", "the kernel never ends", _DECODE),
    _state("stale_state", "a fresh sequence reads the slot's former owner",
           "gdn(queries=33+1+17)", "mamba2(queries=33+1+17)", "short_conv(queries=33+1+17)"),
    _state("state_forgotten", "a carried state is read as zero",
           "gdn(queries=1+1+1,initial=all)", "mamba1(queries=1+1+1,initial=all)"),
    _state("state_not_written", "the state of the last token is not kept",
           "gdn(queries=1+1+1,initial=all)", "linear(queries=33+1+17)"),
    _state("slot_swapped", "states go to the neighbour's slot",
           "gdn(queries=1+1+1,initial=all)", "mamba2(queries=33+1+17)"),
    _state("rollback_one_late", "verification starts from a rejected draft's state",
           f"gdn({_VERIFY})", f"mamba2({_VERIFY})"),
    _state("drafts_kept_in_one_slot", "a draft's state does not get its own slot",
           f"gdn({_VERIFY})"),
    _state("padding_row_owned", "a padding row writes slot 0",
           "gdn(queries=33+1,initial=fresh,padding=2)"),
    _state("state_rounded", "the state is kept in bfloat16", "gdn(queries=1+1+1,initial=all)"),
    _state("decay_dropped", "the state does not decay", "gdn(queries=33+1+17)",
           "linear(queries=33+1+17)"),
    _state("norm_dropped", "queries and keys are not normalised", "gdn(queries=33+1+17)"),
    _state("beta_ignored", "every token is written at full strength", "gdn(queries=33+1+17)"),
    _state("gate_bias_dropped", "the gate's bias is left out", "gdn(queries=33+1+17,gate=true)"),
    _state("softplus_dropped", "the step is not passed through softplus",
           "mamba1(queries=33+1+17)", "mamba2(queries=33+1+17)"),
    _state("skip_dropped", "the skip term D is left out", "mamba2(queries=33+1+17)",
           "mamba1(queries=33+1+17)"),
    _state("step_limits_dropped", "steps are not limited", "mamba2(queries=33+1+17,limits=true)"),
    _state("groups_mixed", "heads read another group's B and C",
           "mamba2(queries=33+1+17,groups=2,state_size=128)"),
    _state("taps_reversed", "the convolution's taps run backwards", "short_conv(queries=33+1+17)"),
    _state("conv_bias_dropped", "the convolution has no bias", "short_conv(queries=33+1+17)"),
    _latent("rope_ignored", "the rotary part of a key is left out", "mla(contexts=1+47+130)"),
    _latent("values_of_the_whole_row", "values come from the end of the row",
            "mla(contexts=1+47+130)"),
    _latent("latent_scale", "the logits are scaled by the latent width", "mla(contexts=1+47+130)"),
    _latent("lse_in_base_two", "the log-sum-exp is in base two", "mla(contexts=1+47+130)"),
    _latent("merged_by_halves", "two parts are averaged, not weighed", "merge_states(tokens=5)"),
    _latent("hole_is_token_zero", "index -1 is read as token 0",
            "mla_sparse(contexts=1+47+130,picks=holes)"),
    _latent("stray_index_clamped", "an index beyond the cache is read as the last token",
            "mla_sparse(contexts=1+47+130,picks=stray)"),
    _latent("nothing_is_not_a_number", "a row without a token is 0 / 0",
            "mla_sparse(contexts=1+47+130,picks=nothing)"),
    _latent("relu_dropped", "the indexer's products are not rectified",
            "indexer(queries=16+5,contexts=49+70)"),
    _latent("index_weights_ignored", "the indexer's heads weigh alike",
            "indexer(queries=16+5,contexts=49+70)"),
    _latent("picks_the_future", "the indexer picks tokens after the query",
            "indexer(queries=16+5,contexts=49+70)"),
    _latent("one_pick_short", "the indexer picks a token too few",
            "indexer(queries=1,contexts=33,topk=32)"),
)  # fmt: skip
