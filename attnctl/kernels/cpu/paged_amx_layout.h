// How AMX's tiles want queries, keys and values: laid out for spans of context.

#pragma once

#include "amx.h"
#include "paged_ahead.h"

#if TILES

constexpr i64 SPAN = 4 * TILE;   // tokens of context between two looks at the tops
constexpr i64 BLOCK = 2 * SIDE;  // rows of a product, columns of one
// a row of scores, a panel of values: what lies a power of two apart shares sets of the caches
constexpr i64 SCORES = SPAN + SIDE;
constexpr i64 VALUES = SPAN * SIDE + DEPTH;

struct Tiled {
  u16* query;    // [rows][depth]
  u16* keys;     // [SPAN / 16][depth / 2][16][2]
  u16* values;   // [wide / 16][VALUES], of which [SPAN / 2][16][2]
  u16* weight;   // [BLOCK][SPAN]
  float* sums;   // [rows][wide]
  float* score;  // [BLOCK][SCORES]
  float *top, *total;
  i32 *seen, *any;
  Tile *tiles, *next;  // [SPAN / TILE], of this span and the one behind it
  i64 n, more;         // tokens of each
  i64 key_bytes, value_bytes;
  bool turned;  // at most 16 rows: `query` is [depth / 2][16][2]
};

INLINE i64 depth_of(const Attention& a) { return ceil_to(a.width, DEPTH); }
INLINE i64 wide_of(const Attention& a) { return ceil_to(a.value_width, BLOCK); }

// whether this call's rows are multiplied in tiles
template <class T>
INLINE bool in_tiles(const Attention& a) {
  return T::split && a.query_type == TYPE_BF16 && tiles_granted();
}

INLINE i64 rows_in_tiles(const Attention& a) {
  return a.block_rows > 0 ? ceil_to(a.block_rows, BLOCK) : 16 * BLOCK;
}

static i64 tiled_bytes(const Attention& a, i64 rows) {
  i64 depth = depth_of(a), wide = wide_of(a), count = ceil_to(rows, BLOCK);
  i64 halves = count * depth + SPAN * depth + wide / SIDE * VALUES + BLOCK * SPAN;
  i64 floats = count * (wide + 2) + BLOCK * SCORES + 2 * SPAN;
  return halves * 2 + floats * 4 + (i64)sizeof(Tiled) +
         2 * SPAN / TILE * (i64)sizeof(Tile) + 1024;
}

static Tiled* lay_out_tiled(const Attention& a, i64 rows, Arena& arena) {
  i64 depth = depth_of(a), wide = wide_of(a), count = ceil_to(rows, BLOCK);
  Tiled* p = (Tiled*)arena.floats((i64)sizeof(Tiled) / 4);
  p->tiles = (Tile*)arena.floats(SPAN / TILE * (i64)sizeof(Tile) / 4);
  p->next = (Tile*)arena.floats(SPAN / TILE * (i64)sizeof(Tile) / 4);
  p->query = (u16*)arena.floats(count * depth / 2);
  p->keys = (u16*)arena.floats(SPAN * depth / 2);
  p->values = (u16*)arena.floats(wide / SIDE * VALUES / 2);
  p->weight = (u16*)arena.floats(BLOCK * SPAN / 2);
  p->sums = arena.floats(count * wide);
  p->score = arena.floats(BLOCK * SCORES);
  p->top = arena.floats(count);
  p->total = arena.floats(count);
  p->seen = (i32*)arena.floats(SPAN);
  p->any = (i32*)arena.floats(SPAN);
  return p;
}

// ---- laying out ----

// 16 bfloat16 of a row from `at` on, zeros behind its end: what lies there is another row
INLINE v8 halves_of(const u8* row, i64 at, i64 width) {
  if (at + SIDE <= width) return *(const v8_any*)(row + at * 2);
  u16 part[SIDE] = {};
  for (i64 x = 0; x < width - at; x++) part[x] = ((const u16*)row)[at + x];
  return *(const v8_any*)part;
}

// rows of 16 tokens as [depth / 2][16][2], pairs of columns side by side
INLINE void pair_columns(const u8* const* rows, i64 width, i64 depth, u16* to) {
  for (i64 j = 0; j < SIDE; j += 8) {
    for (i64 d = 0; d < depth; d += SIDE) {
      v8 block[8];
#pragma GCC unroll 8
      for (i64 x = 0; x < 8; x++) block[x] = halves_of(rows[j + x], d, width);
      transpose8(block);
#pragma GCC unroll 8
      for (i64 x = 0; x < 8; x++) *(v8_any*)(to + (d / 2 + x) * DEPTH + j * 2) = block[x];
    }
  }
}

// keys of 16 tokens from `from` on; past the last token: that one again, whose scores are thrown
// away
INLINE void find_keys(const Tiled& p, i64 from, const u8** key) {
  for (i64 x = 0; x < SIDE; x++) {
    i64 token = least(from + x, p.n - 1);
    key[x] = p.tiles[token / TILE].key[token % TILE];
  }
}

// one of `parts` shares of the next span's lines into the second-level cache
INLINE void fetch_part(const Tiled& p, i64 part, i64 parts) {
  i64 from = p.more * part / parts, to = p.more * (part + 1) / parts;
  for (i64 j = from; j < to; j++) {
    const Tile& t = p.next[j / TILE];
    for (i64 x = 0; x < p.key_bytes; x += 64) fetch_line(t.key[j % TILE] + x);
    for (i64 x = 0; x < p.value_bytes; x += 64) fetch_line(t.value[j % TILE] + x);
  }
}

// Values, pairs of tokens side by side: [wide / 16][live / 2][16][2]; zeros where no row sees the
// token and past the width. Columns come in the order of `pairs_of`.
static void pair_values(const Attention& a, const Tiled& p, bool full, Span live, i64 parts) {
  static const u16 none[BLOCK] = {};
  i64 whole = a.value_width / BLOCK * BLOCK, rest = a.value_width - whole;
  for (i64 j = live.begin; j < live.end; j += 2) {
    if (j % BLOCK == 0) fetch_part(p, SPAN / BLOCK + j / BLOCK, parts);
    const u16* value[2];
    i64 step[2];
    for (i64 x = 0; x < 2; x++) {
      bool seen = j + x < p.n && (full || p.any[j + x]);
      value[x] = seen ? (const u16*)p.tiles[(j + x) / TILE].value[(j + x) % TILE] : none;
      step[x] = seen;
    }
    u16* to = p.values + j * SIDE;
    for (i64 c = 0; c < whole; c += BLOCK, to += 2 * VALUES)
      pairs_of(value[0] + c * step[0], value[1] + c * step[1], to, to + VALUES);
    if (!rest) continue;
    u16 last[2][BLOCK] = {};
    for (i64 x = 0; x < 2; x++)
      __builtin_memcpy(last[x], value[x] + whole * step[x], (usize)rest * 2);
    pairs_of(last[0], last[1], to, to + VALUES);
  }
}

// a row of sums in the order of their columns
INLINE void order_columns(float* row, i64 wide) {
  for (i64 c = 0; c < wide; c += BLOCK) {
    float got[BLOCK];
    for (i64 x = 0; x < BLOCK; x++) got[column_of(x)] = row[c + x];
    __builtin_memcpy(row + c, got, sizeof got);
  }
}

#endif
