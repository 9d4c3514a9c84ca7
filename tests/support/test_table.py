"""The support table: read off the declarations, as a value and as markdown."""

from __future__ import annotations

import msgspec

from attnctl.layer import FEATURES
from attnctl.registry import Backend, Broken, Rank, Registry, load
from attnctl.requirements import Rule, head_sizes, operation, platform
from attnctl.support.markdown import markdown
from attnctl.support.table import Matrix, Order, matrix

TABLE = matrix(load())
ROWS = {row.name: row for row in TABLE.rows}


def order(platform: str, op: str) -> Order:
    return next(o for o in TABLE.orders if (o.platform, o.op) == (platform, op))


def test_every_backend_has_a_row_and_every_row_its_backend() -> None:
    """Sorted by name, none left out."""
    assert [row.name for row in TABLE.rows] == sorted(b.name for b in load().backends)


def test_a_row_says_what_the_rules_accept() -> None:
    """The texts are those that findings show as wanted."""
    row = ROWS["TRITON_ATTN"]
    assert row.head_sizes == "at least 32"
    assert row.dtypes == "float16, bfloat16 or float32"
    assert row.platforms == ("cuda", "rocm", "xpu")
    assert row.devices == ("compute capability 7.0 or newer",)
    assert row.packages == ("torch", "triton")
    assert row.blocks == "a multiple of 16"
    assert set(row.features) == set(FEATURES)
    assert row.features["sinks"] == "yes"
    assert row.features["blocksparse"] == "no"


def test_conditions_and_platforms_are_not_lost() -> None:
    """A feature that hangs on something says on what; a rule of one platform names it."""
    assert ROWS["FLASH_ATTN"].features["sinks"] == "with FA3 or FA4 on 9.0 or newer"
    assert (
        ROWS["FLASH_ATTN"].blocks
        == "a multiple of 16 (256 with the flash-attn package's FA2) (cuda); a multiple of 64 (xpu)"
    )
    assert ROWS["ROCM_AITER_UNIFIED_ATTN"].blocks == "a multiple of 16; asks for 64"
    assert ROWS["FLASH_ATTN_MLA"].head_sizes == "320, 512 or 576 (cuda); 576 (xpu)"


def test_orders_and_their_rules() -> None:
    """The list without conditions, and each place that a rule gives."""
    assert order("cuda", "paged").names == (
        *("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"),
    )
    assert order("cuda", "paged").rules == (
        "FLASHINFER: on 10.x causal attention takes FlashInfer first",
    )
    assert order("cpu", "mla").names == ("CPU_MLA",)
    assert {o.platform for o in TABLE.orders} == {"cuda", "rocm", "xpu", "cpu"}


def test_state_backends_are_marked_and_have_no_cache_dtype() -> None:
    """A state is no KV cache."""
    assert ROWS["GDN_ATTN"].is_ssm
    assert ROWS["GDN_ATTN"].kv_cache_dtypes == ""
    line = next(x for x in markdown(TABLE).splitlines() if x.startswith("| `GDN_ATTN`"))
    assert "a state, no cache" in line
    assert "kda_gate" in line


def test_the_markdown_is_a_table_with_a_line_per_backend() -> None:
    """Every line has as many cells as the head."""
    lines = [line for line in markdown(TABLE).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(TABLE.rows)
    assert {line.count(" | ") for line in lines} == {lines[0].count(" | ")}
    assert [line.split("`")[1] for line in lines[2:]] == [row.name for row in TABLE.rows]


def test_a_plug_in_has_a_row_and_a_broken_one_is_named() -> None:
    """What an author did not say is left open; what did not load is told apart."""
    plugin = Backend(
        name="FANCY",
        summary="a plug-in",
        ops=("fancy",),
        rules=(
            operation("fancy"),
            platform("cpu"),
            head_sizes(64),
            Rule("sinks", "layer", lambda subject: None),
        ),
        ranks=(Rank(platform="cpu", place=1),),
        kernel="adapter",
        origin="fancy|kernels",
    )
    broken = Broken("TORN", "torn-kernels", "ImportError: no fancy")
    table = matrix(Registry((plugin,), (broken,)))
    assert table.rows[0].features == {"sinks": "if its rule is met"}
    assert table.orders == (Order(platform="cpu", op="fancy", names=("FANCY",)),)
    text = markdown(table)
    assert "| `FANCY` | fancy | cpu | - | 64 |" in text
    assert "adapter, by fancy\\|kernels" in text
    assert "- TORN (torn-kernels): ImportError: no fancy" in text


def test_the_table_goes_to_json_and_back() -> None:
    """`attnctl list --json` prints this value."""
    assert msgspec.json.decode(msgspec.json.encode(TABLE), type=Matrix) == TABLE
    assert TABLE.schema == "attnctl.matrix/1"
