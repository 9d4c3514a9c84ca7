// Tiles of context, and what few rows of queries and many do alike.

#pragma once

#include "paged_call.h"

// ---- tiles of context ----

struct Item {
  i64 b, kv_head, row, rows, begin, end;
  i64 part;  // where its partial results begin, in rows; -1: it writes the output itself
  i64 packed;
};

// where a row of an item stands in its sequence
INLINE i64 position_of(const Attention& a, const Sequence& s, i64 row) {
  return s.length - s.queries + row / (a.heads / a.kv_heads);
}

constexpr i64 TILE = 64;  // tokens; a multiple of LANES and of a panel

struct Run {  // rows of memory that lie at the same distance from each other
  const u8* at;
  i64 bytes, stride, rows;
};

struct Tile {
  i64 at, n, run_count;
  Run runs[2 * TILE];  // the tile as it lies in memory
  const u8 *key[TILE], *value[TILE];  // one row each
  float key_scale[TILE], value_scale[TILE];
};

// `count` tokens of a page as runs: one where K and V of a token lie side by side, or two
INLINE void add_runs(const Attention& a, const u8* key, const u8* value, i64 count, Tile& t) {
  i64 size = SIZES[a.cache_type], key_step = a.key_p * size, value_step = a.value_p * size;
  i64 key_bytes = a.width * size, value_bytes = a.value_width * size;
  bool together = value == key + key_bytes && key_step == value_step;
  Run runs[2] = {{key, key_bytes, key_step, count}, {value, value_bytes, value_step, count}};
  if (together) runs[0].bytes += value_bytes;
  for (i64 x = 0; x < (together ? 1 : 2); x++) {
    Run& run = runs[x];
    if (run.bytes == run.stride) run.bytes *= count, run.rows = 1;
    t.runs[t.run_count++] = run;
  }
}

INLINE void find_scales(const Attention& a, i64 block, i64 row, i64 kv_head, i64 j, Tile& t) {
  t.key_scale[j] =
      a.key_scales[block * a.key_scale_n + row * a.key_scale_p + kv_head * a.key_scale_h];
  t.value_scale[j] =
      a.value_scales[block * a.value_scale_n + row * a.value_scale_p + kv_head * a.value_scale_h];
}

// rows behind the tile's end, which are read and thrown away
INLINE void fill_up(Tile& t, i64 to) {
  for (i64 j = t.n; t.n && j < to; j++) {
    t.key[j] = t.key[t.n - 1];
    t.value[j] = t.value[t.n - 1];
  }
}

// the tokens from `at` on, at most `most_tokens` and none behind the item's end
static void find_tile(const Attention& a, const Sequence& s, const Item& item, i64 at,
                      i64 most_tokens, Tile& t) {
  i64 size = SIZES[a.cache_type], j = 0, n = most(least(most_tokens, item.end - at), 0);
  const i32* pages = a.table + s.index * a.table_b;
  t.at = at;
  t.n = n;
  t.run_count = 0;
  while (j < n) {
    u32 page = (u32)(at + j) / (u32)a.page;
    i64 block = pages[page], row = (at + j) - page * a.page;
    i64 stop = least(n, j + a.page - row);
    const u8* key = a.keys + (block * a.key_n + row * a.key_p + item.kv_head * a.key_h) * size;
    const u8* value =
        a.values + (block * a.value_n + row * a.value_p + item.kv_head * a.value_h) * size;
    add_runs(a, key, value, stop - j, t);
    for (i64 x = j; a.key_scales && x < stop; x++)
      find_scales(a, block, row + x - j, item.kv_head, x, t);
    for (; j < stop; j++, key += a.key_p * size, value += a.value_p * size) {
      t.key[j] = key;
      t.value[j] = value;
    }
  }
  fill_up(t, most_tokens);
}

template <class T>
static void stage_rows(const u8** rows, const float* scales, i64 n, i64 width, float* to) {
  i64 pad = ceil_to(width, LANES);
  for (i64 j = 0; j < n; j++, to += pad) {
    float scale = scales ? scales[j] : 1.0f;
    for (i64 d = 0; d < width; d += LANES) *(vf*)(to + d) = read_most<T>(rows[j], d, width) * scale;
    rows[j] = (const u8*)to;
  }
}

static void stage_part(i64 type, const u8** rows, const float* scales, i64 n, i64 width,
                       float* to) {
  if (type == TYPE_E4M3) stage_rows<E4M3>(rows, scales, n, width, to);
  else if (type == TYPE_E5M2) stage_rows<E5M2>(rows, scales, n, width, to);
  else stage_rows<I8>(rows, scales, n, width, to);
}

// one-byte storage is made float here, once for all rows; other types are read as they are
INLINE bool staged(const Attention& a) { return SIZES[a.cache_type] == 1; }

static i64 staging_floats(const Attention& a) {
  return staged(a) ? TILE * (ceil_to(a.width, LANES) + ceil_to(a.value_width, LANES)) : 0;
}

static void stage(const Attention& a, Tile& t, float* to) {
  if (!staged(a)) return;
  const float *ks = a.key_scales ? t.key_scale : nullptr, *vs = ks ? t.value_scale : nullptr;
  stage_part(a.cache_type, t.key, ks, t.n, a.width, to);
  stage_part(a.cache_type, t.value, vs, t.n, a.value_width, to + TILE * ceil_to(a.width, LANES));
  fill_up(t, TILE);
}

// scores of one row to logits in base 2, before masks
INLINE void bend(const Attention& a, const Tile& t, i64 i, i64 head, i64 from, i64 to, float* row) {
  float cap = (float)a.softcap, slope = a.slopes ? a.slopes[head] * LOG2E : 0;
  for (i64 j = from; j < to; j += LANES) {
    vf x = load(row + j);
    if (cap > 0) x = tanh_of(x / cap) * (cap * LOG2E);
    if (a.slopes) {
      vf distance;
      for (i64 l = 0; l < LANES; l++) distance[l] = (float)(t.at + j + l - i);
      x += distance * slope;
    }
    store(row + j, x);
  }
}

INLINE bool bends(const Attention& a) { return a.softcap > 0 || a.slopes; }

INLINE void mask(const i32* seen, i64 from, i64 to, float* row) {
  for (i64 j = from; j < to; j += LANES) {
    vi keep = (vi)load((const float*)seen + j);
    store(row + j, pick(keep, load(row + j), splat(NEVER)));
  }
}

// ---- results ----

// a row's sums to the output, or nothing but zeros for a row that saw nothing
INLINE void finish(const Attention& a, i64 token, i64 head, const float* sums, float top,
                   float total) {
  u8* to = a.out + (token * a.out_t + head * a.out_h) * (a.query_type == TYPE_F32 ? 4 : 2);
  float factor = 0;
  if (total != 0) {
    float sink = a.sinks ? a.sinks[head] * LOG2E : NEVER;
    float above = sink > top ? sink : top;
    float keep = exp2_one(top - above);
    float all = total * keep + (a.sinks ? exp2_one(sink - above) : 0);
    factor = keep / all * (float)a.value_scale;
  }
  put_row(to, sums, a.value_width, factor, a.query_type);
  if (total == 0) put_zeros(to, a.value_width, a.query_type);
  if (a.lse) a.lse[token * a.lse_t + head * a.lse_h] = natural_lse(top, total);
}

// ---- work ----

struct Partial {  // [rows] of width padded to lanes
  float *sums, *top, *total;
  i64 stride;
};

INLINE void query_row(const Attention& a, i64 token, i64 head, float factor, float* to, i64 pad) {
  i64 size = a.query_type == TYPE_F32 ? 4 : 2;
  const u8* from = a.query + (token * a.query_t + head * a.query_h) * size;
  for (i64 d = 0; d < pad; d += LANES) {
    vf x = {};
    if (d < a.width) {
      if (a.query_type == TYPE_F32) x = read_most<F32>(from, d, a.width);
      else if (a.query_type == TYPE_F16) x = read_most<F16>(from, d, a.width);
      else x = read_most<BF16>(from, d, a.width);
    }
    store(to + d, x * factor);
  }
}

INLINE float query_factor(const Attention& a) {
  return (float)(a.scale * a.key_scale * (a.softcap > 0 ? 1.0 : 1.44269504088896341));
}

INLINE void leave(const Attention& a, const Sequence& s, const Item& item, const Partial& partial,
                  i64 r, const float* sums, float top, float total) {
  i64 group = a.heads / a.kv_heads;
  i64 row = item.row + r;
  if (item.part < 0) {
    finish(a, s.first + row / group, item.kv_head * group + row % group, sums, top, total);
    return;
  }
  i64 at = item.part + r;
  for (i64 d = 0; d < a.value_width; d++) partial.sums[at * partial.stride + d] = sums[d];
  partial.top[at] = top;
  partial.total[at] = total;
}
