// Many rows of queries where queries and cache are bfloat16 and the processor multiplies tiles of
// them: tiles of context are laid out for its products, and weights are rounded to bfloat16.

#pragma once

#include "amx.h"
#include "paged_ahead.h"

#if TILES

#ifndef SPAN_TILES
#define SPAN_TILES 4
#endif
constexpr i64 SPAN = SPAN_TILES * TILE;  // tokens of context between two looks at the tops
constexpr i64 BLOCK = 2 * SIDE;          // rows of a product, columns of one
// a row of scores, a panel of values: what lies a power of two apart shares sets of the caches
constexpr i64 SCORES = SPAN + SIDE;
constexpr i64 VALUES = SPAN * SIDE + DEPTH;

struct Tiled {
  u16 *query;   // [rows][depth]
  u16 *keys;    // [SPAN / 16][depth / 2][16][2]
  u16 *values;  // [wide / 16][VALUES], of which [SPAN / 2][16][2]
  u16 *weight;  // [BLOCK][SPAN]
  float *sums;  // [rows][wide]
  float *score; // [BLOCK][SCORES]
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

// ---- weights ----

INLINE v8 higher(v8 a, v8 b) { return a > b ? a : b; }

INLINE v8 halves_top(vf x) {
#if defined(__AVX512F__)
  return higher(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7),
                __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
#else
  return x;
#endif
}

INLINE v8 pair_tops(v8 a, v8 b) {
  return higher(SHUFFLE8(a, b, 0, 8, 1, 9, 4, 12, 5, 13), SHUFFLE8(a, b, 2, 10, 3, 11, 6, 14, 7, 15));
}

INLINE v8 quad_tops(const vf* x) {
  v8 ab = pair_tops(halves_top(x[0]), halves_top(x[1]));
  v8 cd = pair_tops(halves_top(x[2]), halves_top(x[3]));
  return higher(SHUFFLE8(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13),
                SHUFFLE8(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15));
}

// the highest of each of eight vectors, in order
INLINE v8 tops_of(const vf* x) {
  v8 low = quad_tops(x), high = quad_tops(x + 4);
  return higher(SHUFFLE8(low, high, 0, 1, 2, 3, 8, 9, 10, 11),
                SHUFFLE8(low, high, 4, 5, 6, 7, 12, 13, 14, 15));
}

// the highest of n scores of each of `rows` rows, a multiple of eight
INLINE void tops_of_rows(const float* score, i64 n, i64 rows, float* tops) {
  for (i64 r = 0; r < rows; r += 8) {
    vf high[8];
#pragma GCC unroll 8
    for (i64 x = 0; x < 8; x++) {
      const float* row = score + (r + x) * SCORES;
      vf a = load(row), b = load(row + LANES);
      for (i64 j = 2 * LANES; j < n; j += 2 * LANES) {
        a = greater_of(a, load(row + j));
        b = greater_of(b, load(row + j + LANES));
      }
      high[x] = greater_of(a, b);
    }
    *(v8_any*)(tops + r) = tops_of(high);
  }
}

// n scores of each row, times `factor`, to weights, and their sums
INLINE void powers_of_rows(const float* score, i64 n, i64 rows, float factor, const float* base,
                           u16* weight, float* totals) {
  for (i64 r = 0; r < rows; r += 8) {
    vf total[8];
#pragma GCC unroll 8
    for (i64 x = 0; x < 8; x++) {
      const float* row = score + (r + x) * SCORES;
      u16* to = weight + (r + x) * SPAN;
      vf low = splat(base[r + x]), sum = {}, rest = {};
      for (i64 j = 0; j < n; j += 2 * LANES) {
        vf a = power_of(load(row + j) * factor - low);
        vf b = power_of(load(row + j + LANES) * factor - low);
        put_bf16s(to + j, a, b);
        sum += a;
        rest += b;
      }
      total[x] = sum + rest;
    }
    *(v8_any*)(totals + r) = sums_of(total);
  }
}

// Scores of a block of rows, times `factor`, to weights. Tops and totals go on over spans, and what
// the sums so far are worth is multiplied into them. A factor below 0 would turn the order round.
static void weigh_block_of(i64 rows, i64 n, const float* score, float factor, i64 wide, u16* weight,
                           float* top, float* total, float* sums) {
  alignas(64) float high[BLOCK], base[BLOCK], keep[BLOCK], more[BLOCK];
  tops_of_rows(score, n, rows, high);
  for (i64 r = 0; r < rows; r += LANES) {
    vf before = load(top + r), now = greater_of(before, load(high + r) * factor);
    vf low = pick(now == NEVER, (vf){}, now);
    store(top + r, now);
    store(base + r, low);
    store(keep + r, exp2_of(before - low));
  }
  powers_of_rows(score, n, rows, factor, base, weight, more);
  for (i64 r = 0; r < rows; r += LANES)
    store(total + r, load(total + r) * load(keep + r) + load(more + r));
  for (i64 r = 0; r < rows; r++) {
    if (keep[r] == 1.0f) continue;
    float* row = sums + r * wide;
    for (i64 c = 0; c < wide; c += LANES) store(row + c, load(row + c) * keep[r]);
  }
}

// what position i sees of the span, and that somebody sees it
INLINE void mark_seen(const Attention& a, const Sequence& s, i64 i, Tiled& p) {
  mark_row(a, s, i, p.tiles[0].at, p.n, p.seen);
  for (i64 j = p.n; j < ceil_to(p.n, BLOCK); j++) p.seen[j] = 0;
}

INLINE i64 position_of_row(const Attention& a, const Sequence& s, i64 row) {
  return s.length - s.queries + row / (a.heads / a.kv_heads);
}

// weights of the block of rows from r on, over the columns of `live`
template <i64 R>
static void weigh_rows(const Attention& a, const Sequence& s, const Item& item, i64 r, Span live,
                       bool full, Tiled& p) {
  i64 group = a.heads / a.kv_heads, wide = wide_of(a), marked = -NONE;
  float factor = query_factor(a);
  bool whole = full && !bends(a) && factor > 0;
  for (i64 x = r; !whole && x < least(r + R * SIDE, item.rows); x++) {
    i64 i = position_of_row(a, s, item.row + x);
    float* row = p.score + (x - r) * SCORES;
    for (i64 j = live.begin; j < live.end; j += LANES) store(row + j, load(row + j) * factor);
    i64 head = item.kv_head * group + (item.row + x) % group;
    if (bends(a)) bend(a, p.tiles[0], i, head, live.begin, live.end, row);
    if (full) continue;
    if (i != marked) mark_seen(a, s, i, p);
    marked = i;
    mask(p.seen, live.begin, live.end, row);
  }
  weigh_block_of(R * SIDE, live.end - live.begin, p.score + live.begin, whole ? factor : 1, wide,
                 p.weight, p.top + r, p.total + r, p.sums + r * wide);
}

// ---- one item ----

// which of the span's columns the rows of block r see, in whole blocks
INLINE Span live_columns(const Attention& a, const Sequence& s, const Item& item, i64 r, i64 count,
                         const Tiled& p) {
  i64 last = least(r + count, item.rows) - 1, at = p.tiles[0].at;
  Span hull = hull_of(a, s, position_of_row(a, s, item.row + r),
                      position_of_row(a, s, item.row + last));
  i64 begin = most(hull.begin - at, 0) / BLOCK * BLOCK;
  i64 end = least(ceil_to(most(hull.end - at, 0), BLOCK), ceil_to(p.n, BLOCK));
  return begin < end ? Span{begin, end} : Span{0, 0};
}

template <i64 R>
INLINE void block_of_rows(const Attention& a, const Sequence& s, const Item& item, i64 r, Span live,
                          bool full, Tiled& p) {
  i64 depth = depth_of(a), wide = wide_of(a), n = live.end - live.begin;
  for (i64 c = live.begin; c < live.end && !p.turned; c += BLOCK)
    tile_product<R, false>(depth, p.query + r * depth, depth, p.keys + c * depth, SIDE * depth,
                           p.score + c, SCORES);
  weigh_rows<R>(a, s, item, r, live, full, p);
  for (i64 c = 0; c < wide; c += BLOCK)
    tile_product<R, true>(n, p.weight, SPAN, p.values + (c / SIDE * VALUES + live.begin * SIDE),
                          VALUES, p.sums + r * wide + c, wide);
}

// Scores of at most 16 rows with 32 tokens from c on: keys, read where they are, are multiplied by
// the queries' pairs, and the scores turned.
static void turned_scores(const Attention& a, Tiled& p, i64 c) {
  i64 depth = depth_of(a), step = a.key_p * 2, stride[2];
  const u8 *key[SIDE], *rows[2];
  for (i64 x = 0; x < 2; x++) {
    find_keys(p, c + x * SIDE, key);
    rows[x] = key[0], stride[x] = step;
    if (depth == a.width && key[SIDE - 1] - key[0] == (SIDE - 1) * step) continue;
    u16* to = p.keys + x * SIDE * depth;
    for (i64 j = 0; j < SIDE; j++, to += depth) {
      __builtin_memcpy(to, key[j], (usize)a.width * 2);
      for (i64 d = a.width; d < depth; d++) to[d] = 0;
    }
    rows[x] = (const u8*)(p.keys + x * SIDE * depth), stride[x] = depth * 2;
  }
  alignas(64) float got[2 * SIDE][SIDE];
  tile_columns(depth, rows, stride, p.query, got[0]);
  for (i64 j = 0; j < 2 * SIDE; j += 8) {
    for (i64 r = 0; r < SIDE; r += 8) {
      v8 block[8];
#pragma GCC unroll 8
      for (i64 x = 0; x < 8; x++) block[x] = *(const v8_any*)(got[j + x] + r);
      transpose8(block);
#pragma GCC unroll 8
      for (i64 x = 0; x < 8; x++) *(v8_any*)(p.score + (r + x) * SCORES + c + j) = block[x];
    }
  }
}

static void one_span(const Attention& a, const Sequence& s, const Item& item, Tiled& p) {
  i64 first = position_of_row(a, s, item.row);
  i64 last = position_of_row(a, s, item.row + item.rows - 1), depth = depth_of(a);
  bool full = p.n % BLOCK == 0 && all_see(a, s, first, last, p.tiles[0].at, p.n);
  Span all = full ? Span{0, p.n} : live_columns(a, s, item, 0, item.rows, p);
  if (all.begin >= all.end) return;
  if (!full) {
    for (i64 j = 0; j < SPAN; j++) p.any[j] = 0;
    for (i64 i = first; i <= last; i++) {
      mark_seen(a, s, i, p);
      for (i64 j = all.begin; j < all.end; j++) p.any[j] |= p.seen[j];
    }
  }
  i64 blocks = SPAN / BLOCK, parts = 2 * blocks + ceil_to(item.rows, BLOCK) / BLOCK;
  for (i64 c = all.begin; c < all.end; c += BLOCK) {
    fetch_part(p, c / BLOCK, parts);
    if (p.turned) {
      turned_scores(a, p, c);
      continue;
    }
    for (i64 x = c; x < c + BLOCK; x += SIDE) {
      const u8* key[SIDE];
      find_keys(p, x, key);
      pair_columns(key, a.width, depth, p.keys + x * depth);
    }
  }
  pair_values(a, p, full, all, parts);
  for (i64 r = 0; r < item.rows; r += BLOCK) {
    fetch_part(p, 2 * blocks + r / BLOCK, parts);
    Span live = full ? all : live_columns(a, s, item, r, BLOCK, p);
    if (live.begin >= live.end) continue;
    if (item.rows - r > SIDE) block_of_rows<2>(a, s, item, r, live, full, p);
    else block_of_rows<1>(a, s, item, r, live, full, p);
  }
}

static void prepare_tiled(const Attention& a, const Sequence& s, const Item& item, Tiled& p) {
  i64 group = a.heads / a.kv_heads, depth = depth_of(a), rows = ceil_to(item.rows, BLOCK);
  for (i64 r = 0; r < rows; r++) {
    i64 row = item.row + r, token = s.first + row / group, head = item.kv_head * group + row % group;
    u16* to = p.query + r * depth;
    i64 width = r < item.rows ? a.width : 0;
    if (width)
      __builtin_memcpy(to, a.query + (token * a.query_t + head * a.query_h) * 2, (usize)width * 2);
    for (i64 d = width; d < depth; d++) to[d] = 0;
    for (i64 d = 0; d < wide_of(a); d++) p.sums[r * wide_of(a) + d] = 0;
    p.top[r] = NEVER;
    p.total[r] = 0;
  }
  p.turned = item.rows <= SIDE;
  if (p.turned) {
    const u8* row[SIDE];
    for (i64 r = 0; r < SIDE; r++) row[r] = (const u8*)(p.query + r * depth);
    pair_columns(row, depth, depth, p.keys);
    __builtin_memcpy(p.query, p.keys, (usize)(SIDE * depth * 2));
  }
  p.key_bytes = a.width * 2, p.value_bytes = a.value_width * 2;
}

// how many tokens there are from `at` on
static i64 find_span(const Attention& a, const Sequence& s, const Item& item, i64 at, Tile* tiles) {
  i64 n = 0;
  for (i64 x = 0; x < SPAN / TILE; x++) {
    find_tile(a, s, item, at + n, TILE, tiles[x]);
    n += tiles[x].n;
  }
  return n;
}

static void tiled(const Attention& a, const Item& item, const Partial& partial, Tiled& p) {
  Sequence s = sequence_of(a, item.b);
  prepare_tiled(a, s, item, p);
  p.more = find_span(a, s, item, item.begin, p.next);
  for (i64 at = item.begin; at < item.end; at += SPAN) {
    Tile* now = p.next;
    p.next = p.tiles, p.tiles = now;
    p.n = p.more;
    p.more = find_span(a, s, item, at + SPAN, p.next);
    one_span(a, s, item, p);
  }
  for (i64 r = 0; r < item.rows; r++) {
    float* sums = p.sums + r * wide_of(a);
    order_columns(sums, wide_of(a));
    leave(a, s, item, partial, r, sums, p.top[r], p.total[r]);
  }
}

#else

struct Tiled {};
template <class T>
INLINE bool in_tiles(const Attention&) { return false; }
INLINE i64 rows_in_tiles(const Attention&) { return 0; }
INLINE i64 tiled_bytes(const Attention&, i64) { return 0; }
INLINE Tiled* lay_out_tiled(const Attention&, i64, Arena&) { return nullptr; }
INLINE void tiled(const Attention&, const Item&, const Partial&, Tiled&) {}
INLINE void open_tiles() {}
INLINE void close_tiles() {}

#endif
