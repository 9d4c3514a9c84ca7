"""A case's values are judged before anything runs, and every case of ours passes."""

from __future__ import annotations

import pytest

from attnctl.exits import InputError
from attnctl.ops.case import split_case
from attnctl.ops.catalog import all_cases, case_of


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("paged(heads=8,kv_heads=3)", "heads must be a multiple of kv_heads, found 8 and 3"),
        ("gdn(k_heads=3)", "v_heads must be a multiple of k_heads, found 4 and 3"),
        ("mamba2(groups=3)", "heads must be a multiple of groups, found 4 and 3"),
        ("paged(heads=0)", "heads must be a whole number from 1 to 1048576, found 0"),
        ("paged(kv_heads=0)", "kv_heads must be a whole number from 1"),
        ("paged(head_size=-64)", "head_size must be a whole number from 1 to 1048576, found -64"),
        ("paged(head_size_v=1.5)", "head_size_v must be a whole number from 0"),
        ("paged(heads=1048584)", "heads must be a whole number from 1 to 1048576, found 1048584"),
        ("paged(page=0)", "page must be a whole number from 1"),
        ("mla(page=-1)", "page must be a whole number from 1"),
        ("paged(page=1000000)", "page must be a whole number from 1 to 65536, found 1000000"),
        ("paged(window=-1)", "window must be a whole number from 0 to 16777216, found -1"),
        ("paged(chunk=-8)", "chunk must be a whole number from 0"),
        ("paged(padding=true)", "padding must be a whole number from 0 to 1048576, found true"),
        ("paged(softcap=-1)", "softcap must be 0, or from 1e-30 to 1e+30, found -1"),
        ("paged(softcap=1e-300)", "softcap must be 0, or from 1e-30 to 1e+30, found 1e-300"),
        ("paged(softcap=nan)", "softcap must be a finite number, found nan"),
        ("paged(softcap=inf)", "softcap must be a finite number, found inf"),
        (f"linear(scale=1{400 * '0'})", "scale must be a finite number, found 1000"),
        (f"paged(heads=1{5000 * '0'})", "heads must be a whole number from 1 to 1048576"),
        ("linear(scale=big)", "scale must be a finite number, found big"),
        ("paged(causal=1)", "causal must be true or false, found 1"),
        ("paged(layout=SD)", "layout must be one of NHD, HND, found SD"),
        ("short_conv(layout=NHD)", "layout must be one of SD, DS, found NHD"),
        ("paged(dtype=int3)", "dtype must be one of float16, bfloat16, float32, found int3"),
        ("paged(dtype=none)", "found none"),
        ("mla(kv_cache_dtype=fp7)", "kv_cache_dtype must be one of auto, "),
        ("mla_sparse(picks=some)", "picks must be one of first, "),
        ("paged(queries=-1,contexts=3)", "queries must be whole numbers of 0 or more, joined"),
        ("paged(queries=1+-2,contexts=3+4)", "found 1+-2"),
        ("paged(queries=1e3,contexts=1000)", "queries must be whole numbers"),
        ("paged(queries=5)", "queries and contexts must name as many sequences, found 1 and 3"),
        ("indexer(queries=,contexts=3)", "must name as many sequences, found 0 and 1"),
        ("paged(queries=9,contexts=3)", "found 9 queries in a context of 3"),
        ("paged(queries=1,contexts=16777217)", "contexts must be at most 16777216 tokens"),
        ("gdn(queries=9000000+9000000)", "queries must be at most 16777216 tokens in all"),
        ("merge_states(tokens=16777217)", "tokens must be a whole number from 0 to 16777216"),
        ("gdn(accepted=2)", "accepted must be from 1 to 1, as drafts is 0, found 2"),
        ("short_conv(columns=2)", "columns must be 0, or 3 and more, as width is 4 and drafts"),
        ("short_conv(drafts=1)", "queries must be 2 and fewer in a sequence that is verified"),
        ("short_conv(queries=1+1+5,drafts=1,verified=mixed)", "as drafts is 1; found 5"),
        ("gdn(drafts=3,accepted=)", "accepted must be from 1 to 4, as drafts is 3, found nothing"),
        ("paged(heads=4,heads=8)", "heads is given twice"),
        ("paged(op=1)", "no such parameter: op. It has queries, contexts, "),
        ("paged(windw=3)", "no such parameter: windw. Did you mean window?"),
        ("pagd()", "pagd: no such operation. Did you mean paged?"),
        ("gdn(op=1)", "no such parameter: op"),
        ("paged(defaults=1)", "no such parameter: defaults"),
    ],
)
def test_a_value_of_which_no_inputs_can_be_made_is_refused(text: str, says: str) -> None:
    """One sentence names the parameter, what it must be and what was found."""
    with pytest.raises(InputError) as refused:
        case_of(*split_case(text))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_case_of_the_catalogue_passes_and_comes_back_from_its_text() -> None:
    """Empty lists, padded rows and infinities among them."""
    again = [case_of(*split_case(one.text)).text for one in all_cases()]
    assert again == [one.text for one in all_cases()]
    assert "paged(queries=,contexts=)" in again
    assert "merge_states(empty=mixed,absent=inf)" in again
