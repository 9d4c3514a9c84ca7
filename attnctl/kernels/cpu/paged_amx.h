// Many rows of queries where queries and cache are bfloat16 and the processor multiplies tiles of
// them. The steps are those of paged_many.h: but for weights, which are rounded to bfloat16, only
// the layouts differ.

#pragma once

#include "paged_amx_weights.h"

#if TILES

// ---- weights ----

// what position i sees of the span, and that somebody sees it
INLINE void mark_seen(const Attention& a, const Sequence& s, i64 i, Tiled& p) {
  mark_row(a, s, i, p.tiles[0].at, p.n, p.seen);
  for (i64 j = p.n; j < ceil_to(p.n, BLOCK); j++) p.seen[j] = 0;
}

// weights of the block of rows from r on, over the columns of `live`
template <i64 R>
static void weigh_rows(const Attention& a, const Sequence& s, const Item& item, i64 r, Span live,
                       bool full, Tiled& p) {
  i64 group = a.heads / a.kv_heads, wide = wide_of(a), marked = -NONE;
  float factor = query_factor(a);
  bool whole = full && !bends(a) && factor > 0;
  for (i64 x = r; !whole && x < least(r + R * SIDE, item.rows); x++) {
    i64 i = position_of(a, s, item.row + x);
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
  Span hull = hull_of(a, s, position_of(a, s, item.row + r),
                      position_of(a, s, item.row + last));
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

// whether 16 keys lie `step` bytes apart, also where they are of several pages
INLINE bool evenly(const u8* const* key, i64 step) {
  i64 odd = 0;
  for (i64 x = 1; x < SIDE; x++) odd |= key[x] - key[x - 1] - step;
  return !odd;
}

// Scores of at most 16 rows with 32 tokens from c on: keys, read where they are, are multiplied by
// the queries' pairs, and the scores turned.
static void turned_scores(const Attention& a, Tiled& p, i64 c) {
  i64 depth = depth_of(a), step = a.key_p * 2, stride[2];
  const u8 *key[SIDE], *rows[2];
  for (i64 x = 0; x < 2; x++) {
    find_keys(p, c + x * SIDE, key);
    rows[x] = key[0], stride[x] = step;
    if (depth == a.width && evenly(key, step)) continue;
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
  i64 first = position_of(a, s, item.row);
  i64 last = position_of(a, s, item.row + item.rows - 1), depth = depth_of(a);
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
