// Paged attention and cache writes on a processor. The mathematics is that of attnctl/ops/paged.py.
// Threads are OpenMP's. Addresses are 64-bit. Logits are kept in base 2: exp(x) = 2^(x log2 e).

#include "vectors.h"

// ---- the call ----

constexpr i64 NONE = (i64)1 << 40;  // a window that excludes nothing

struct Attention {  // in the order of attnctl/kernels/cpu/call.py
  const u8 *query, *keys, *values;
  u8* out;
  const i32 *table, *starts, *lens;
  const float *sinks, *slopes;
  const i32* ranges;
  const float *key_scales, *value_scales;
  float* lse;  // null: not wanted
  i64 query_type, cache_type, sequences, heads, kv_heads, width, value_width, page;
  i64 query_t, query_h, out_t, out_h, lse_t, lse_h;  // strides in elements
  i64 key_n, key_p, key_h, value_n, value_p, value_h;
  i64 key_scale_n, key_scale_p, key_scale_h, value_scale_n, value_scale_p, value_scale_h;
  i64 table_b, range_count, causal, window, window_right, chunk, threads;
  i64 shortest, parts, block_rows, direct_rows;  // to be tuned; see SHORTEST and below
  double scale, softcap, key_scale, value_scale;
};

struct Writes {
  const u8 *key, *value;
  u8 *keys, *values;
  const i64* slots;
  float *key_scales, *value_scales;
  i64 source_type, cache_type, count, kv_heads, width, value_width, page;
  i64 key_t, key_h, value_t, value_h;
  i64 key_n, key_p, key_h_out, value_n, value_p, value_h_out;
  i64 key_scale_n, key_scale_p, key_scale_h, value_scale_n, value_scale_p, value_scale_h;
  i64 threads;
  double key_scale, value_scale;
};

// ---- what a row sees ----

struct Span {
  i64 begin, end;
};

struct Sequence {
  i64 index, length, first, queries;
  const i32* ranges;
};

INLINE Sequence sequence_of(const Attention& a, i64 b) {
  const i32* ranges = a.ranges ? a.ranges + b * a.range_count * 2 : nullptr;
  return {b, a.lens[b], a.starts[b], (i64)a.starts[b + 1] - a.starts[b], ranges};
}

INLINE i64 floor_div(i64 a, i64 b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

// what the masks leave to position i, ranges apart; both ends grow with i
INLINE Span span_of(const Attention& a, i64 i, i64 length) {
  i64 begin = most(0, i - a.window + 1);
  i64 end = least(length, i + a.window_right + 1);
  if (a.causal) end = least(end, i + 1);
  if (a.chunk) {
    i64 chunk = floor_div(i, a.chunk);
    begin = most(begin, chunk * a.chunk);
    end = least(end, (chunk + 1) * a.chunk);
  }
  return {begin, end};
}

// a span that holds all that rows of positions first..last see
INLINE Span hull_of(const Attention& a, const Sequence& s, i64 first, i64 last) {
  Span hull = {span_of(a, first, s.length).begin, span_of(a, last, s.length).end};
  if (hull.end <= hull.begin) hull = {NONE, 0};
  for (i64 m = 0; s.ranges && m < a.range_count; m++) {
    i64 begin = s.ranges[2 * m], end = s.ranges[2 * m + 1];
    if (begin >= end || first >= end || last < begin) continue;
    hull = {least(hull.begin, most(begin, 0)), most(hull.end, least(end, s.length))};
  }
  return hull.begin < hull.end ? hull : Span{0, 0};
}

INLINE void mark(i32* seen, Span span, i64 at, i64 n) {
  i64 from = most(span.begin - at, 0), to = least(span.end - at, n);
  for (i64 j = from; j < to; j++) seen[j] = -1;
}

// seen[j] = -1 where position i sees token at + j, 0 elsewhere
INLINE void mark_row(const Attention& a, const Sequence& s, i64 i, i64 at, i64 n, i32* seen) {
  for (i64 j = 0; j < ceil_to(n, LANES); j++) seen[j] = 0;
  mark(seen, span_of(a, i, s.length), at, n);
  for (i64 m = 0; s.ranges && m < a.range_count; m++) {
    i64 begin = s.ranges[2 * m], end = s.ranges[2 * m + 1];
    if (i >= begin && i < end) mark(seen, {begin, least(end, s.length)}, at, n);
  }
}

INLINE bool all_see(const Attention& a, const Sequence& s, i64 first, i64 last, i64 at, i64 n) {
  return span_of(a, last, s.length).begin <= at && span_of(a, first, s.length).end >= at + n;
}

// ---- tiles of context ----

constexpr i64 TILE = 64;  // tokens; a multiple of LANES and of a panel

struct Tile {
  i64 at, n;
  const u8 *key[TILE], *value[TILE];  // one row each
  float key_scale[TILE], value_scale[TILE];
};

static void find_tile(const Attention& a, const Sequence& s, i64 kv_head, i64 at, i64 n, Tile& t) {
  i64 size = SIZES[a.cache_type], j = 0;
  const i32* pages = a.table + s.index * a.table_b;
  t.at = at;
  t.n = n;
  while (j < n) {
    i64 block = pages[(at + j) / a.page], row = (at + j) % a.page;
    i64 stop = least(n, j + a.page - row);
    const u8* key = a.keys + (block * a.key_n + row * a.key_p + kv_head * a.key_h) * size;
    const u8* value = a.values + (block * a.value_n + row * a.value_p + kv_head * a.value_h) * size;
    for (i64 x = 0; a.key_scales && x < stop - j; x++) {
      t.key_scale[j + x] =
          a.key_scales[block * a.key_scale_n + (row + x) * a.key_scale_p + kv_head * a.key_scale_h];
      t.value_scale[j + x] = a.value_scales[block * a.value_scale_n + (row + x) * a.value_scale_p +
                                            kv_head * a.value_scale_h];
    }
    for (; j < stop; j++, key += a.key_p * size, value += a.value_p * size) {
      t.key[j] = key;
      t.value[j] = value;
    }
  }
  for (; j < TILE; j++) {  // read, or fetched, and thrown away
    t.key[j] = t.key[n - 1];
    t.value[j] = t.value[n - 1];
  }
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
  for (i64 j = t.n; j < TILE; j++) t.key[j] = t.key[t.n - 1];
  stage_part(a.cache_type, t.value, vs, t.n, a.value_width, to + TILE * ceil_to(a.width, LANES));
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

struct Item {
  i64 b, kv_head, row, rows, begin, end;
  i64 part;  // where its partial results begin, in rows; -1: it writes the output itself
  i64 packed;
};

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

// ---- few rows: the cache is read as it is stored, once ----

constexpr i64 FEW = 16;       // rows
constexpr i64 WIDEST = 1024;  // of a key or a value, in this path

struct Direct {
  alignas(64) float query[FEW * WIDEST];
  alignas(64) float sums[FEW * WIDEST];
  alignas(64) float score[FEW * TILE];
  alignas(64) float floats[8 * WIDEST];  // some tokens' keys
  alignas(64) i32 seen[TILE];
  alignas(64) i32 any[TILE];
  float top[FEW], total[FEW], keep[FEW];
  Tile tiles[2];
  float* staging;
};

// Memory is fetched in its own order, K and V of one token after another, and one tile ahead: these
// are rows index..index + n of the next tile's 2 TILE. The order in which rows are used, all keys
// and then all values, is not one that processors foresee, and costs half of the bandwidth.
INLINE const u8* const* rows_ahead(const Tile* next, i64 index, i64 n, const u8** rows) {
  if (!next) return nullptr;
  for (i64 x = index; x < index + n; x++)
    *rows++ = x & 1 ? next->value[x >> 1] : next->key[x >> 1];
  return rows - n;
}

// into the second-level cache: the first is full
INLINE void fetch(const u8* p) { __builtin_prefetch(p, 0, 2); }

INLINE void fetch_row(const u8* row, i64 bytes) {
  for (i64 x = 0; x < bytes; x += 64) fetch(row + x);
}

#if defined(__AVX512F__)
constexpr i64 SUMS = 16;  // accumulators at a time: they hide the latency of the sums
constexpr i64 ROWS = 8;
#else
constexpr i64 SUMS = 8;
constexpr i64 ROWS = 4;
#endif
constexpr i64 STEP = 8;    // tokens whose keys all rows use before the next are read
constexpr i64 MIXED = 16;  // tokens whose values all rows use before the next are read

// score[r][j] = query[r] . key[j] for R rows and some tokens; d is the lane, and lanes are added up
template <class T, i64 R>
INLINE void dots(const float* query, i64 pad, const u8* const* key, i64 width,
                 const u8* const* ahead, float* score) {
  constexpr i64 J = least(SUMS / R, STEP);
  i64 whole = width / (2 * LANES) * (2 * LANES), d = 0;
  vf sum[R * J] = {};
  for (; d < whole; d += 2 * LANES) {
    Two k[J];
    if (ahead && d * T::size % 64 == 0) {
#pragma GCC unroll 8
      for (i64 x = 0; x < J; x++) fetch(ahead[x] + d * T::size);
    }
#pragma GCC unroll 8
    for (i64 x = 0; x < J; x++) k[x] = read_two<T>(key[x] + d * T::size);
#pragma GCC unroll 8
    for (i64 r = 0; r < R; r++) {
      vf q = *(const vf*)(query + r * pad + d);
      IN_REGISTER(q);
#pragma GCC unroll 8
      for (i64 x = 0; x < J; x++) sum[r * J + x] += q * k[x].a;
    }
#pragma GCC unroll 8
    for (i64 r = 0; r < R; r++) {
      vf q = *(const vf*)(query + r * pad + d + LANES);
      IN_REGISTER(q);
#pragma GCC unroll 8
      for (i64 x = 0; x < J; x++) sum[r * J + x] += q * k[x].b;
    }
  }
  for (; d < width; d += LANES) {
#pragma GCC unroll 8
    for (i64 x = 0; x < J; x++) {
      vf k = read_most<T>(key[x], d, width);
#pragma GCC unroll 8
      for (i64 r = 0; r < R; r++) sum[r * J + x] += *(const vf*)(query + r * pad + d) * k;
    }
  }
#pragma GCC unroll 2
  for (i64 g = 0; g < R * J; g += 8) {
    v8 s = sums_of(sum + g);
#pragma GCC unroll 8
    for (i64 r = g / J; r < (g + 8) / J; r++) {
      float* row = score + r * TILE;
      if constexpr (J == 8) *(v8_any*)row = s;
      else if constexpr (J == 4) *(v4_any*)row = r * J - g ? upper4(s) : lower4(s);
      else *(double_any*)row = ((d4)s)[(r * J - g) / 2];
    }
  }
}

// One row is done with a key before memory has the next: keys one by one, each row ahead at once.
template <class T>
INLINE void dots_alone(const float* query, const u8* const* keys, i64 width,
                       const u8* const* ahead, float* score) {
  vf sums[STEP];
  for (i64 x = 0; x < STEP; x++) {
    const u8* key = keys[x];
    if (ahead) fetch_row(ahead[x], width * T::size);
    vf sum[4] = {};
    i64 d = 0;
    for (; d + 4 * LANES <= width; d += 4 * LANES) {
#pragma GCC unroll 2
      for (i64 half = 0; half < 4; half += 2) {
        Two k = read_two<T>(key + (d + half * LANES) * T::size);
        sum[half] += *(const vf*)(query + d + half * LANES) * k.a;
        sum[half + 1] += *(const vf*)(query + d + (half + 1) * LANES) * k.b;
      }
    }
    for (; d + 2 * LANES <= width; d += 2 * LANES) {
      Two k = read_two<T>(key + d * T::size);
      sum[0] += *(const vf*)(query + d) * k.a;
      sum[1] += *(const vf*)(query + d + LANES) * k.b;
    }
    for (; d < width; d += LANES) sum[2] += *(const vf*)(query + d) * read_most<T>(key, d, width);
    sums[x] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  *(v8_any*)score = sums_of(sums);
}

template <class T, i64 R>
INLINE void score_rows(const float* query, i64 pad, const u8* const* key, i64 width,
                       const u8* const* ahead, i64& r, i64 rows, float* score) {
  for (; r + R <= rows; r += R)
    for (i64 j = 0; j < STEP; j += least(SUMS / R, STEP))
      dots<T, R>(query + r * pad, pad, key + j, width, ahead && !r ? ahead + j : nullptr,
                 score + r * TILE + j);
}

// The same for more rows, where the row is the lane: nothing is left to be added up. The query is
// [width][V * LANES], the keys are floats.
template <i64 V>
INLINE void dots_across(const float* query, const float* const* key, i64 width,
                        const u8* const* ahead, float* score) {
  constexpr i64 J = STEP / V;
  vf sum[V][J] = {};
  for (i64 d = 0; d < width; d++, query += V * LANES) {
    if (ahead && d % 16 == 0)
      for (i64 x = 0; x < J; x++) fetch(ahead[x] + d * 4);
    vf q[V];
#pragma GCC unroll 2
    for (i64 v = 0; v < V; v++) {
      q[v] = *(const vf*)(query + v * LANES);
      IN_REGISTER(q[v]);
    }
#pragma GCC unroll 8
    for (i64 x = 0; x < J; x++) {
      vf k = splat(key[x][d]);
#pragma GCC unroll 2
      for (i64 v = 0; v < V; v++) sum[v][x] += q[v] * k;
    }
  }
#pragma GCC unroll 2
  for (i64 v = 0; v < V; v++) {
    for (i64 half = 0; half < LANES; half += 8) {
      v8 block[8] = {};
#pragma GCC unroll 8
      for (i64 x = 0; x < J; x++) block[x] = *(const v8_any*)((const float*)&sum[v][x] + half);
      transpose8(block);
      float* to = score + (v * LANES + half) * TILE;
#pragma GCC unroll 8
      for (i64 r = 0; r < 8; r++, to += TILE) {
        if constexpr (J == 8) *(v8_any*)to = block[r];
        else *(v4_any*)to = lower4(block[r]);
      }
    }
  }
}

template <class T, i64 V>
INLINE void score_across(const float* query, const u8* const* key, i64 width,
                         const u8* const* ahead, float* floats, float* score) {
  const float* rows[STEP];
  i64 pad = ceil_to(width, LANES);
  for (i64 x = 0; x < STEP; x++) {
    if constexpr (T::size == 4) {
      rows[x] = (const float*)key[x];
      continue;
    }
    float* to = floats + x * pad;
    i64 d = 0;
    if (ahead) fetch_row(ahead[x], width * T::size);
    for (; d + 2 * LANES <= width; d += 2 * LANES) {
      Two two = read_two<T>(key[x] + d * T::size);
      *(vf*)(to + d) = two.a;
      *(vf*)(to + d + LANES) = two.b;
    }
    for (; d < width; d += LANES) *(vf*)(to + d) = read_most<T>(key[x], d, width);
    rows[x] = to;
  }
  if (T::size < 4) ahead = nullptr;
  for (i64 x = 0; x < STEP; x += STEP / V)
    dots_across<V>(query, rows + x, width, ahead ? ahead + x : nullptr, score + x);
}

// sums[r] = keep[r] * sums[r] + weight[r] . value, for N tokens and C columns of vectors
template <class T, i64 R, i64 C, bool PART>
INLINE void mix(const float* weight, const float* keep, const u8* const* values, i64 n, i64 column,
                i64 width, const u8* const* ahead, float* sums, i64 pad) {
  // where there is work between, one line at a time: more of them would hold up the loads
  constexpr i64 bytes = C * LANES * T::size, every = bytes < 64 ? 64 / bytes - 1 : 0;
  i64 from = column * T::size, turn = from / bytes & every;
  vf sum[R][C];
#pragma GCC unroll 8
  for (i64 r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (i64 c = 0; c < C; c++) {
      vf x = *(const vf*)(sums + r * pad + column + c * LANES);
      sum[r][c] = keep ? x * keep[r] : x;
    }
  }
  for (i64 j = 0; j < n; j++) {
    const u8* value = values[j] + from;
    if (R == 1) {
      if (ahead && !column) fetch_row(ahead[j], width * T::size);
    } else if (ahead && (j & every) == turn) {
#pragma GCC unroll 8
      for (i64 x = 0; x < bytes; x += 64) fetch(ahead[j] + from + x);
    }
    vf v[C];
    if constexpr (C == 1) {
      v[0] = PART ? read_part<T>(value, width - column) : T::read(value);
    } else {
#pragma GCC unroll 8
      for (i64 c = 0; c < C; c += 2) {
        Two two = read_two<T>(value + c * LANES * T::size);
        v[c] = two.a;
        v[c + 1] = two.b;
      }
    }
#pragma GCC unroll 8
    for (i64 r = 0; r < R; r++) {
      vf w = splat(weight[r * TILE + j]);
#pragma GCC unroll 8
      for (i64 c = 0; c < C; c++) sum[r][c] += w * v[c];
    }
  }
#pragma GCC unroll 8
  for (i64 r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (i64 c = 0; c < C; c++) *(vf*)(sums + r * pad + column + c * LANES) = sum[r][c];
  }
}

template <class T, i64 R>
INLINE void mix_rows(const float* weight, const float* keep, const u8* const* values, i64 n,
                     i64 width, const u8* const* ahead, i64& r, i64 rows, float* sums, i64 pad) {
  constexpr i64 C = least(SUMS / R, 8);
  for (; r + R <= rows; r += R) {
    const float *w = weight + r * TILE, *k = keep ? keep + r : nullptr;
    float* to = sums + r * pad;
    if (r) ahead = nullptr;
    i64 c = 0;
    for (; c + C * LANES <= width; c += C * LANES)
      mix<T, R, C, false>(w, k, values, n, c, width, ahead, to, pad);
    for (; c + 2 * LANES <= width; c += 2 * LANES)
      mix<T, R, 2, false>(w, k, values, n, c, width, ahead, to, pad);
    for (; c + LANES <= width; c += LANES)
      mix<T, R, 1, false>(w, k, values, n, c, width, ahead, to, pad);
    if (c < width) mix<T, R, 1, true>(w, k, values, n, c, width, ahead, to, pad);
  }
}

// drops the tokens that no row sees, so that what is stored there is never multiplied
static void drop_unseen(Direct& d, Tile& t, i64 rows) {
  i64 kept = 0;
  for (i64 j = 0; j < t.n; j++) {
    if (!d.any[j]) continue;
    t.value[kept] = t.value[j];
    for (i64 r = 0; r < rows; r++) d.score[r * TILE + kept] = d.score[r * TILE + j];
    kept++;
  }
  for (i64 r = 0; r < rows; r++)
    for (i64 j = kept; j < TILE; j++) d.score[r * TILE + j] = NEVER;
  t.n = kept;
}

// returns whether some row sees some token of the tile
static bool mask_direct(const Attention& a, const Sequence& s, const Item& item, Direct& d,
                        Tile& t) {
  i64 group = a.heads / a.kv_heads, padded = ceil_to(t.n, LANES), before = s.length - s.queries;
  i64 first = before + item.row / group, last = before + (item.row + item.rows - 1) / group;
  if (all_see(a, s, first, last, t.at, t.n)) {
    for (i64 r = 0; r < item.rows; r++)
      for (i64 j = t.n; j < padded; j++) d.score[r * TILE + j] = NEVER;
    return true;
  }
  for (i64 j = 0; j < padded; j++) d.any[j] = 0;
  i64 position = first - 1;
  for (i64 r = 0; r < item.rows; r++) {
    i64 i = before + (item.row + r) / group;
    if (i != position) {
      mark_row(a, s, i, t.at, t.n, d.seen);
      for (i64 j = 0; j < t.n; j++) d.any[j] |= d.seen[j];
      position = i;
    }
    mask(d.seen, 0, padded, d.score + r * TILE);
  }
  i64 n = t.n, count = 0;
  for (i64 j = 0; j < n; j++) count += d.any[j] != 0;
  if (count < n) drop_unseen(d, t, item.rows);
  return count > 0;
}

// rows whose scores are computed across lanes, in ones or twos of vectors; fewer: 0
INLINE i64 across(i64 rows) {
#if defined(__AVX512F__)
  return rows > 8 ? LANES : 0;
#else
  return rows > 8 ? 2 * LANES : rows > 4 ? LANES : 0;
#endif
}

template <class T>
static void score_tile(Direct& d, const Attention& a, const Tile& t, const Tile* next, i64 pad,
                       i64 rows) {
  i64 lanes = across(rows), w = a.width;
  for (i64 j = 0; j < t.n; j += STEP) {
    const u8 *coming[STEP], *const *ahead = rows_ahead(next, j, STEP, coming);
    const u8* const* key = t.key + j;
    float* score = d.score + j;
    if (lanes == LANES) score_across<T, 1>(d.query, key, w, ahead, d.floats, score);
    else if (lanes) score_across<T, 2>(d.query, key, w, ahead, d.floats, score);
    if (lanes) continue;
    if (rows == 1) dots_alone<T>(d.query, key, w, ahead, score);
    i64 r = rows == 1;
    if constexpr (ROWS == 8) score_rows<T, 8>(d.query, pad, key, w, ahead, r, rows, score);
    score_rows<T, 4>(d.query, pad, key, w, ahead, r, rows, score);
    score_rows<T, 2>(d.query, pad, key, w, ahead, r, rows, score);
    score_rows<T, 1>(d.query, pad, key, w, ahead, r, rows, score);
  }
}

template <class T>
static void mix_tile(Direct& d, const Attention& a, const Tile& t, const Tile* next, i64 pad,
                     i64 rows) {
  for (i64 j = 0; j < t.n; j += MIXED) {
    const u8 *coming[MIXED], *const *ahead = rows_ahead(next, TILE + j, MIXED, coming);
    const u8* const* value = t.value + j;
    i64 n = least(MIXED, t.n - j), r = 0, w = a.value_width;
    const float *weight = d.score + j, *keep = j ? nullptr : d.keep;
    if constexpr (ROWS == 8) mix_rows<T, 8>(weight, keep, value, n, w, ahead, r, rows, d.sums, pad);
    mix_rows<T, 4>(weight, keep, value, n, w, ahead, r, rows, d.sums, pad);
    mix_rows<T, 2>(weight, keep, value, n, w, ahead, r, rows, d.sums, pad);
    mix_rows<T, 1>(weight, keep, value, n, w, ahead, r, rows, d.sums, pad);
  }
}

// a row in the order of read_two, and back
template <class T>
INLINE void split_pairs(float* row, i64 width) {
  if constexpr (!T::split) return;
  for (i64 d = 0; d + 2 * LANES <= width; d += 2 * LANES) {
    float order[2 * LANES];
    for (i64 l = 0; l < LANES; l++)
      order[l] = row[d + 2 * l], order[LANES + l] = row[d + 2 * l + 1];
    for (i64 l = 0; l < 2 * LANES; l++) row[d + l] = order[l];
  }
}

template <class T>
INLINE void join_pairs(float* row, i64 width) {
  if constexpr (!T::split) return;
  for (i64 d = 0; d + 2 * LANES <= width; d += 2 * LANES) {
    float order[2 * LANES];
    for (i64 l = 0; l < LANES; l++)
      order[2 * l] = row[d + l], order[2 * l + 1] = row[d + LANES + l];
    for (i64 l = 0; l < 2 * LANES; l++) row[d + l] = order[l];
  }
}

template <class T>
static void prepare(const Attention& a, const Sequence& s, const Item& item, Direct& d) {
  i64 group = a.heads / a.kv_heads, pad = ceil_to(a.width, LANES), lanes = across(item.rows);
  i64 pad_v = ceil_to(a.value_width, LANES);
  for (i64 r = 0; r < most(item.rows, lanes); r++) {
    float* to = lanes ? d.floats : d.query + r * pad;
    i64 row = item.row + r;
    if (r < item.rows) {
      query_row(a, s.first + row / group, item.kv_head * group + row % group, query_factor(a), to,
                pad);
      split_pairs<T>(to, a.width);
    }
    for (i64 x = 0; lanes && x < a.width; x++)
      d.query[x * lanes + r] = r < item.rows ? to[x] : 0;
    if (r >= item.rows) continue;
    for (i64 x = 0; x < pad_v; x++) d.sums[r * pad_v + x] = 0;
    d.top[r] = NEVER;
    d.total[r] = 0;
  }
}

template <class T>
static void direct(const Attention& a, const Item& item, const Partial& partial, Direct& d) {
  Sequence s = sequence_of(a, item.b);
  i64 group = a.heads / a.kv_heads, rows = item.rows, before = s.length - s.queries;
  i64 pad = ceil_to(a.width, LANES), pad_v = ceil_to(a.value_width, LANES);
  prepare<T>(a, s, item, d);
  i64 at = item.begin, now = 0;
  if (at < item.end) find_tile(a, s, item.kv_head, at, least(TILE, item.end - at), d.tiles[0]);
  for (; at < item.end; at += TILE, now ^= 1) {
    Tile& t = d.tiles[now];
    Tile* next = nullptr;
    if (at + TILE < item.end) {
      next = &d.tiles[now ^ 1];
      find_tile(a, s, item.kv_head, at + TILE, least(TILE, item.end - at - TILE), *next);
    }
    stage(a, t, d.staging);
    score_tile<T>(d, a, t, next, pad, rows);
    if (bends(a)) {
      for (i64 r = 0; r < rows; r++) {
        i64 row = item.row + r;
        bend(a, t, before + row / group, item.kv_head * group + row % group, 0,
             ceil_to(t.n, LANES), d.score + r * TILE);
      }
    }
    i64 padded = ceil_to(t.n, LANES);
    if (!mask_direct(a, s, item, d, t)) continue;
    for (i64 r = 0; r < rows; r += 8)
      weigh_rows(d.score + r * TILE, TILE, least(8, rows - r), padded, d.top + r, d.total + r,
                 d.keep + r);
    mix_tile<T>(d, a, t, next, pad_v, rows);
  }
  for (i64 r = 0; r < rows; r++) {
    join_pairs<T>(d.sums + r * pad_v, a.value_width);
    leave(a, s, item, partial, r, d.sums + r * pad_v, d.top[r], d.total[r]);
  }
}

// ---- many rows: tiles are made float and laid out in panels for a matrix product ----

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

INLINE i64 position_of(const Attention& a, const Sequence& s, i64 row) {
  return s.length - s.queries + row / (a.heads / a.kv_heads);
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
    find_tile(a, s, item.kv_head, at, least(TILE, item.end - at), p.tile);
    stage(a, p.tile, p.staging);
    one_tile<T>(a, s, item, p);
  }
  for (i64 r = 0; r < item.rows; r++)
    leave(a, s, item, partial, r, p.sums + r * stride, p.top[r], p.total[r]);
}

// ---- the plan: which thread does what ----

struct Merge {
  i64 b, kv_head, row, rows, part, splits;
};

INLINE i64 rows_at_a_time(const Attention& a) {
  if (a.block_rows > 0) return ceil_to(a.block_rows, MR);
  // queries and sums of a block of rows stay in the second-level cache
  i64 rows = 24576 / most(most(a.width, a.value_width), 64);
  return most(rows / MR * MR, 4 * MR) > 192 ? 192 : most(rows / MR * MR, 4 * MR);
}

constexpr i64 SHORTEST = 256;  // tokens of context that are worth a part of their own
constexpr i64 PARTS = 4;       // of all the work, for each thread

// one list entry a sequence, KV head and block of rows, the longest last rows first
static void list_items(const Attention& a, List<Item>& items, double& cost) {
  i64 group = a.heads / a.kv_heads, block = rows_at_a_time(a);
  for (i64 b = 0; b < a.sequences; b++) {
    Sequence s = sequence_of(a, b);
    i64 rows = s.queries * group;
    bool few = rows <= least(a.direct_rows, FEW) && a.width <= WIDEST && a.value_width <= WIDEST;
    i64 step = few ? FEW : block;
    for (i64 row = rows > 0 ? (rows - 1) / step * step : -1; row >= 0; row -= step) {
      i64 count = least(step, rows - row);
      Span hull = hull_of(a, s, position_of(a, s, row), position_of(a, s, row + count - 1));
      for (i64 h = 0; h < a.kv_heads; h++)
        items.add({b, h, row, count, hull.begin, hull.end, -1, !few});
      cost += (double)(hull.end - hull.begin) * (double)count * (double)a.kv_heads;
    }
  }
}

// cuts long items into parts where there are too few of them for the threads
static i64 split_items(const Attention& a, const List<Item>& items, double cost, List<Item>& parts,
                       List<Merge>& merges) {
  i64 used = 0, wanted = a.threads * (a.parts > 0 ? a.parts : PARTS);
  i64 shortest = a.shortest > 0 ? a.shortest : SHORTEST;
  for (i64 x = 0; x < items.count; x++) {
    Item item = items.data[x];
    i64 length = item.end - item.begin, splits = 1;
    if (a.threads > 1 && items.count < wanted) {
      double share = cost / (double)wanted;
      splits = (i64)((double)length * (double)item.rows / share + 0.5);
      splits = most(1, least(splits, length / shortest));
    }
    if (splits == 1) {
      parts.add(item);
      continue;
    }
    i64 step = ceil_to((length + splits - 1) / splits, TILE);
    splits = (length + step - 1) / step;
    merges.add({item.b, item.kv_head, item.row, item.rows, used, splits});
    for (i64 n = 0; n < splits; n++) {
      Item part = item;
      part.begin = item.begin + n * step;
      part.end = least(item.end, part.begin + step);
      part.part = used;
      used += item.rows;
      parts.add(part);
    }
  }
  return used;
}

static void merge(const Attention& a, const Merge& m, const Partial& p) {
  Sequence s = sequence_of(a, m.b);
  for (i64 r = 0; r < m.rows; r++) {
    float top = NEVER, total = 0;
    for (i64 n = 0; n < m.splits; n++) {
      float other = p.top[m.part + n * m.rows + r];
      top = other > top ? other : top;
    }
    float base = top == NEVER ? 0 : top;
    float* sums = p.sums + (m.part + r) * p.stride;
    for (i64 n = 0; n < m.splits; n++) {
      i64 at = m.part + n * m.rows + r;
      float keep = exp2_one(p.top[at] - base);
      total += p.total[at] * keep;
      const float* from = p.sums + at * p.stride;
      for (i64 d = 0; d < a.value_width; d++) sums[d] = (n ? sums[d] : 0) + keep * from[d];
    }
    i64 group = a.heads / a.kv_heads, row = m.row + r;
    finish(a, s.first + row / group, m.kv_head * group + row % group, sums, top, total);
  }
}

static i64 packed_bytes(const Attention& a, i64 rows) {
  i64 wide = ceil_to(a.width, 64) + ceil_to(a.value_width, PANEL);
  i64 floats = rows * (wide + TILE + 32) + PANEL * ceil_to(a.width, 64) +
               TILE * ceil_to(a.value_width, PANEL) + 4 * TILE;
  return floats * 4 + 1024;
}

static void lay_out(const Attention& a, i64 rows, Arena& arena, Packed& p) {
  i64 stride = ceil_to(a.value_width, PANEL);
  p.query = arena.floats(rows * a.width);
  p.sums = arena.floats(rows * stride);
  p.score = arena.floats(rows * TILE);
  p.keys = arena.floats(PANEL * a.width);
  p.values = arena.floats(TILE * stride);
  p.seen = (i32*)arena.floats(TILE);
  p.any = (i32*)arena.floats(TILE);
  p.top = arena.floats(rows);
  p.total = arena.floats(rows);
}

template <class T>
static void attend(const Attention& a) {
  List<Item> items, parts;
  List<Merge> merges;
  double cost = 0;
  list_items(a, items, cost);
  if (!items.count) return;
  i64 used = split_items(a, items, cost, parts, merges);
  i64 most_rows = 0;
  for (i64 x = 0; x < parts.count; x++)
    if (parts.data[x].packed) most_rows = most(most_rows, parts.data[x].rows);
  i64 stride = ceil_to(a.value_width, LANES);
  Arena shared((used * (stride + 2) + 48) * 4 + 256);
  float* sums = shared.floats(used * stride);
  Partial partial = {sums, shared.floats(used), shared.floats(used), stride};
  int threads = (int)least(a.threads, parts.count);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    i64 rows = ceil_to(most_rows, MR), staging = staging_floats(a);
    Arena arena((staging + 64) * 4 + (i64)sizeof(Direct) + (rows ? packed_bytes(a, rows) : 0));
    Packed p;
    p.staging = arena.floats(staging);
    Direct* d = (Direct*)arena.floats((i64)sizeof(Direct) / 4);
    d->staging = p.staging;
    if (rows) lay_out(a, rows, arena, p);
#pragma omp for schedule(dynamic, 1)
    for (i64 x = 0; x < parts.count; x++) {
      if (parts.data[x].packed) packed<T>(a, parts.data[x], partial, p);
      else direct<T>(a, parts.data[x], partial, *d);
    }
#pragma omp for schedule(dynamic, 1)
    for (i64 x = 0; x < merges.count; x++) merge(a, merges.data[x], partial);
  }
}

// ---- cache writes ----

template <class T>
INLINE float read_one(const void* p) {
  return read_part<T>(p, 1)[0];
}

INLINE u8 to_e5m2(float x) {
  if (x != x) return 0x7f;
  float r = round_to(x > 57344.0f ? 57344.0f : x < -57344.0f ? -57344.0f : x, 2, -14);
  return (u8)(to_half(r) >> 8 | (__builtin_signbit(x) ? 0x80 : 0));
}

INLINE u8 to_e4m3(float x) {
  u32 sign = __builtin_signbit(x) ? 0x80 : 0;
  if (x != x) return (u8)(sign | 0x7f);
  float r = __builtin_fabsf(round_to(x > 448.0f ? 448.0f : x < -448.0f ? -448.0f : x, 3, -6));
  if (r < 0.015625f) return (u8)(sign | (u32)(r * 512.0f));
  return (u8)(sign | ((__builtin_bit_cast(u32, r) >> 20) - (120u << 3)));
}

template <class S>
static void write_row(const u8* from, u8* to, i64 width, i64 type, float scale,
                      float* token_scale) {
  float largest = 0, inverse = 0;
  if (type == TYPE_I8) {
    for (i64 d = 0; d < width; d++) {
      float x = __builtin_fabsf(read_one<S>(from + d * S::size));
      largest = x > largest || x != x ? x : largest;
    }
    *token_scale = largest / 127.0f < 1e-10f ? 1e-10f : largest / 127.0f;
    inverse = 1.0f / *token_scale;
  }
  for (i64 d = 0; d < width; d++) {
    float x = read_one<S>(from + d * S::size);
    if (type == TYPE_I8) {
      float r = x * inverse + 12582912.0f - 12582912.0f;  // 1.5 * 2^23: to an integer
      to[d] = (u8)(i8)(r > 127.0f ? 127.0f : r > -127.0f ? r : -127.0f);
    } else if (type == TYPE_E4M3) {
      to[d] = to_e4m3(x / scale);
    } else if (type == TYPE_E5M2) {
      to[d] = to_e5m2(x / scale);
    } else {
      put(to, d, x, type);
    }
  }
}

template <class S>
static void write_tokens(const Writes& w) {
  i64 size = SIZES[w.cache_type];
  bool copy = w.source_type == w.cache_type;
#pragma omp parallel for num_threads((int)w.threads) if (w.count * w.kv_heads > 64 && w.threads > 1)
  for (i64 x = 0; x < w.count * w.kv_heads; x++) {
    i64 token = x / w.kv_heads, head = x % w.kv_heads, slot = w.slots[token];
    if (slot < 0) continue;
    i64 page = slot / w.page, row = slot % w.page;
    const u8* key = w.key + (token * w.key_t + head * w.key_h) * S::size;
    const u8* value = w.value + (token * w.value_t + head * w.value_h) * S::size;
    u8* keys = w.keys + (page * w.key_n + row * w.key_p + head * w.key_h_out) * size;
    u8* values = w.values + (page * w.value_n + row * w.value_p + head * w.value_h_out) * size;
    if (copy) {
      __builtin_memcpy(keys, key, (usize)(w.width * size));
      __builtin_memcpy(values, value, (usize)(w.value_width * size));
      continue;
    }
    float *ks = nullptr, *vs = nullptr;
    if (w.cache_type == TYPE_I8) {
      ks = w.key_scales + page * w.key_scale_n + row * w.key_scale_p + head * w.key_scale_h;
      vs = w.value_scales + page * w.value_scale_n + row * w.value_scale_p + head * w.value_scale_h;
    }
    write_row<S>(key, keys, w.width, w.cache_type, (float)w.key_scale, ks);
    write_row<S>(value, values, w.value_width, w.cache_type, (float)w.value_scale, vs);
  }
}

extern "C" {

int attnctl_lanes(void) { return (int)LANES; }

void attnctl_attend(const Attention* a) {
  switch (a->cache_type) {
    case TYPE_F16: return attend<F16>(*a);
    case TYPE_BF16: return attend<BF16>(*a);
    default: return attend<F32>(*a);  // staged
  }
}

void attnctl_write(const Writes* w) {
  switch (w->source_type) {
    case TYPE_F32: return write_tokens<F32>(*w);
    case TYPE_F16: return write_tokens<F16>(*w);
    default: return write_tokens<BF16>(*w);
  }
}
}
