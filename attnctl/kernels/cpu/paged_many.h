// Many rows of queries: tiles are made float and laid out in panels for a matrix product.

#pragma once

#include "paged_tiles.h"

struct Packed {
  float *query, *sums, *score, *keys, *values;
  i32 *seen, *any;
  float *top, *total, *staging;
  Tile tile;
};

// keys of tokens [from, from + PANEL) as [width][PANEL]; past the tile's end: anything finite or
// not, for those scores are thrown away
template <class T>
static void pack_keys(const Tile& t, i64 from, i64 width, float* to) {
  for (i64 j = 0; j < PANEL; j += 8) {
    const u8* key[8];
    for (i64 x = 0; x < 8; x++) key[x] = t.key[least(from + j + x, t.n - 1)];
    for (i64 d = 0; d < width; d += LANES) {
      vf row[8];
#pragma GCC unroll 8
      for (i64 x = 0; x < 8; x++) row[x] = read_most<T>(key[x], d, width);
      for (i64 half = 0; half < LANES && d + half < width; half += 8) {
        v8 block[8];
#pragma GCC unroll 8
        for (i64 x = 0; x < 8; x++) block[x] = *(const v8_any*)((const float*)&row[x] + half);
        transpose8(block);
        i64 count = least(8, width - d - half);
        for (i64 x = 0; x < count; x++) *(v8*)(to + (d + half + x) * PANEL + j) = block[x];
      }
    }
  }
}

// values as [columns / PANEL][TILE][PANEL], zeros where no row sees the token and past the width
template <class T>
static void pack_values(const Attention& a, const Tile& t, const i32* any, Span live, float* to) {
  for (i64 c = 0; c < a.value_width; c += PANEL) {
    float* panel = to + c * TILE;
    for (i64 j = live.begin; j < live.end; j++) {
      for (i64 x = 0; x < PANEL; x += LANES) {
        vf v = {};
        if (j < t.n && (!any || any[j]) && c + x < a.value_width) {
          v = read_most<T>(t.value[j], c + x, a.value_width);
        }
        *(vf*)(panel + j * PANEL + x) = v;
      }
    }
  }
}

// which of the tile's columns the rows of block r see, in whole panels
INLINE Span live_of(const Attention& a, const Sequence& s, const Item& item, i64 r, const Tile& t) {
  i64 last = least(r + MR, item.rows) - 1;
  Span hull = hull_of(a, s, position_of(a, s, item.row + r), position_of(a, s, item.row + last));
  i64 begin = most(hull.begin - t.at, 0) / PANEL * PANEL;
  i64 end = least(ceil_to(most(hull.end - t.at, 0), PANEL), ceil_to(t.n, PANEL));
  return begin < end ? Span{begin, end} : Span{0, 0};
}

// weights of the MR rows from r on, over the columns of `live`
static void weigh_block(const Attention& a, const Sequence& s, const Item& item, i64 r, Span live,
                        bool full, Packed& p) {
  Tile& t = p.tile;
  i64 group = a.heads / a.kv_heads, stride = ceil_to(a.value_width, PANEL), marked = -NONE;
  for (i64 x = r; x < least(r + MR, item.rows); x++) {
    i64 i = position_of(a, s, item.row + x), head = item.kv_head * group + (item.row + x) % group;
    float* row = p.score + x * TILE;
    if (bends(a)) bend(a, t, i, head, live.begin, live.end, row);
    if (!full) {
      if (i != marked) {
        mark_row(a, s, i, t.at, t.n, p.seen);
        for (i64 j = t.n; j < ceil_to(t.n, PANEL); j++) p.seen[j] = 0;
        for (i64 j = 0; j < t.n; j++) p.any[j] |= p.seen[j];
        marked = i;
      }
      mask(p.seen, live.begin, live.end, row);
    }
    float keep = weigh(row, live.begin, live.end, p.top[x], p.total[x]);
    float* sums = p.sums + x * stride;
    for (i64 c = 0; keep != 1.0f && c < stride; c += LANES) store(sums + c, load(sums + c) * keep);
  }
}

template <class T>
static void one_tile(const Attention& a, const Sequence& s, const Item& item, Packed& p) {
  Tile& t = p.tile;
  i64 last = item.rows - 1, stride = ceil_to(a.value_width, PANEL);
  bool full = t.n % PANEL == 0 && all_see(a, s, position_of(a, s, item.row),
                                          position_of(a, s, item.row + last), t.at, t.n);
  Span all = {TILE, 0};
  for (i64 j = 0; !full && j < TILE; j++) p.any[j] = 0;
  for (i64 c = 0; c < ceil_to(t.n, PANEL); c += PANEL) {
    bool packed = false;
    for (i64 r = 0; r < item.rows; r += MR) {
      Span live = full ? Span{0, t.n} : live_of(a, s, item, r, t);
      if (c < live.begin || c >= live.end) continue;
      if (!packed) pack_keys<T>(t, c, a.width, p.keys);
      packed = true;
      product<false>(a.width, p.query + r * a.width, a.width, p.keys, PANEL,
                     p.score + r * TILE + c, TILE);
    }
  }
  for (i64 r = 0; r < item.rows; r += MR) {
    Span live = full ? Span{0, t.n} : live_of(a, s, item, r, t);
    all = {least(all.begin, live.begin < live.end ? live.begin : TILE), most(all.end, live.end)};
    weigh_block(a, s, item, r, live, full, p);
  }
  if (all.begin >= all.end) return;
  pack_values<T>(a, t, full ? nullptr : p.any, all, p.values);
  for (i64 c = 0; c < a.value_width; c += PANEL) {
    for (i64 r = 0; r < item.rows; r += MR) {
      Span live = full ? Span{0, t.n} : live_of(a, s, item, r, t);
      if (live.begin >= live.end) continue;
      product<true>(live.end - live.begin, p.score + r * TILE + live.begin, TILE,
                    p.values + c * TILE + live.begin * PANEL, PANEL, p.sums + r * stride + c,
                    stride);
    }
  }
}

template <class T>
static void packed(const Attention& a, const Item& item, const Partial& partial, Packed& p) {
  Sequence s = sequence_of(a, item.b);
  i64 group = a.heads / a.kv_heads, rows = ceil_to(item.rows, MR);
  i64 stride = ceil_to(a.value_width, PANEL);
  alignas(64) float query[ceil_to(WIDEST, LANES)];
  for (i64 r = 0; r < rows; r++) {
    i64 row = item.row + r;
    if (r < item.rows) {
      query_row(a, s.first + row / group, item.kv_head * group + row % group, query_factor(a),
                query, ceil_to(a.width, LANES));
    }
    for (i64 d = 0; d < a.width; d++) p.query[r * a.width + d] = r < item.rows ? query[d] : 0;
    for (i64 d = 0; d < stride; d++) p.sums[r * stride + d] = 0;
    for (i64 j = 0; j < TILE; j++) p.score[r * TILE + j] = 0;
    p.top[r] = NEVER;
    p.total[r] = 0;
  }
  for (i64 at = item.begin; at < item.end; at += TILE) {
    find_tile(a, s, item, at, TILE, p.tile);
    stage(a, p.tile, p.staging);
    one_tile<T>(a, s, item, p);
  }
  for (i64 r = 0; r < item.rows; r++)
    leave(a, s, item, partial, r, p.sums + r * stride, p.top[r], p.total[r]);
}
