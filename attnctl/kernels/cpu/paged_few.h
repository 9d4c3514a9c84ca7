// Few rows of queries, as when a model decodes: the cache is read as it is stored, once.
//
// Memory is fetched one tile ahead, strictly in its own order, a line at a time and evenly over the
// arithmetic: then both take place at once. The order of use, all keys of a tile and then all its
// values, costs a third of the bandwidth, and so do lines of several rows in turns.

#pragma once

#include "paged_tiles.h"

constexpr i64 FEW = 16;       // rows
constexpr i64 WIDEST = 1024;  // of a key or a value, in this path

struct Direct {
  float *query, *sums, *score, *floats;  // floats: some tokens' keys
  float* total;                          // [FEW][LANES], to be added up
  i32 *seen, *any;
  float* staging;
  float top[FEW], keep[FEW];
  Tile tiles[2];
};

#if defined(__AVX512F__)
constexpr i64 SUMS = 16;  // accumulators at a time: they hide the latency of the sums
constexpr i64 ROWS = 8;
#else
constexpr i64 SUMS = 8;
constexpr i64 ROWS = 4;
#endif
constexpr i64 STEP = 8;   // tokens whose keys all rows use before the next are read
constexpr i64 NEAR = 32;  // tokens whose keys and then values are read while they are near
constexpr i64 ALONE = 16;  // the same of one row, which has less to do for each

// rows whose scores are computed across lanes, in ones or twos of vectors; fewer: 0
INLINE i64 across(i64 rows) {
#if defined(__AVX512F__)
  return rows > 8 ? LANES : 0;
#else
  return rows > 8 ? 2 * LANES : rows > 4 ? LANES : 0;
#endif
}

// passes over a tile by rows in eights, fours, twos and ones
INLINE i64 passes_of(i64 rows) { return rows / ROWS + __builtin_popcount((u32)(rows % ROWS)); }

// ---- fetching ahead ----

struct Ahead {
  const u8 *at, *end;      // of what is being fetched
  const Run *run, *stop;   // of the next tile
  i64 row;
};

INLINE Ahead ahead_of(const Tile& next) {
  return {nullptr, nullptr, next.runs, next.runs + next.run_count, 0};
}

static void next_row(Ahead& f) {
  const Run& run = *f.run;
  f.at = run.at + f.row * run.stride;
  f.end = f.at + run.bytes;
  if (++f.row == run.rows) f.run++, f.row = 0;
}

// into the second-level cache: the first is full
INLINE void fetch(const u8* p) { __builtin_prefetch(p, 0, 2); }

static void fetch_lines(Ahead& f, i64 n) {
  for (; n > 0; n--, f.at += 64) {
    if (f.at >= f.end) {
      if (f.run == f.stop) return;
      next_row(f);
    }
    fetch(f.at);
  }
}

// where the next n lines lie, for a loop to fetch; where they lie apart, they are fetched here
INLINE const u8* take_lines(Ahead& f, i64 n, const u8* otherwise) {
  const u8* at = f.at;
  if (f.end - at >= 64 * n) {
    f.at += 64 * n;
    return at;
  }
  fetch_lines(f, n);
  return otherwise;
}

// ---- scores ----

// score[r][j] = query[r] . key[j] for R rows and some tokens; d is the lane, and lanes are added
// up. Lines are fetched in the first `fetching` columns.
template <class T, i64 R>
INLINE void dots(const float* query, i64 pad, const u8* const* key, i64 width, Ahead& ahead,
                 i64 fetching, float* score) {
  constexpr i64 J = least(SUMS / R, STEP);
  i64 whole = width / (2 * LANES) * (2 * LANES), d = 0;
  vf sum[R * J] = {};
  const u8* lines = take_lines(ahead, J * fetching * T::size / 64, key[0]);
  for (; d < whole; d += 2 * LANES) {
    Two k[J];
    if (d < fetching && d * T::size % 64 == 0) {
#pragma GCC unroll 8
      for (i64 x = 0; x < J; x++) fetch(lines + J * d * T::size + x * 64);
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
      float* row = score + r * NEAR;
      if constexpr (J == 8) *(v8_any*)row = s;
      else if constexpr (J == 4) *(v4_any*)row = r * J - g ? upper4(s) : lower4(s);
      else *(double_any*)row = ((d4)s)[(r * J - g) / 2];
    }
  }
}

// one row is done with a key before memory has the next: keys one by one
template <class T>
INLINE void dots_alone(const float* query, const u8* const* keys, i64 width, Ahead& ahead,
                       float* score) {
  vf sums[STEP];
  for (i64 x = 0; x < STEP; x++) {
    const u8* key = keys[x];
    const u8* lines = take_lines(ahead, width * T::size / 64, key);
    for (i64 x = 0; x < width * T::size; x += 64) fetch(lines + x);
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
INLINE void score_rows(const float* query, i64 pad, const u8* const* key, i64 width, Ahead& ahead,
                       i64 fetching, i64& r, i64 rows, float* score) {
  for (; r + R <= rows; r += R)
    for (i64 j = 0; j < STEP; j += least(SUMS / R, STEP))
      dots<T, R>(query + r * pad, pad, key + j, width, ahead, fetching, score + r * NEAR + j);
}

// The same for more rows, where the row is the lane: nothing is left to be added up. The query is
// [width][V * LANES], the keys are floats; `size` bytes were read of each.
template <i64 V, i64 size>
INLINE void dots_across(const float* query, const float* const* key, i64 width, Ahead& ahead,
                        float* score) {
  constexpr i64 J = STEP / V;
  vf sum[V][J] = {};
  const u8* lines = take_lines(ahead, width * J * size / 64, (const u8*)key[0]);
  for (i64 d = 0; d < width; d++, query += V * LANES, lines += J * size) {
    fetch(lines);
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
      float* to = score + (v * LANES + half) * NEAR;
#pragma GCC unroll 8
      for (i64 r = 0; r < 8; r++, to += NEAR) {
        if constexpr (J == 8) *(v8_any*)to = block[r];
        else *(v4_any*)to = lower4(block[r]);
      }
    }
  }
}

template <class T>
INLINE void widen_row(const u8* from, i64 width, float* to) {
  i64 d = 0;
  for (; d + 2 * LANES <= width; d += 2 * LANES) {
    Two two = read_two<T>(from + d * T::size);
    *(vf*)(to + d) = two.a;
    *(vf*)(to + d + LANES) = two.b;
  }
  for (; d < width; d += LANES) *(vf*)(to + d) = read_most<T>(from, d, width);
}

template <class T, i64 V>
INLINE void score_across(const float* query, const u8* const* key, i64 width, Ahead& ahead,
                         float* floats, float* score) {
  constexpr i64 J = STEP / V;
  const float* rows[STEP];
  i64 pad = ceil_to(width, LANES);
  for (i64 x = 0; x < STEP; x++) {
    rows[x] = T::size == 4 ? (const float*)key[x] : floats + x * pad;
    if constexpr (T::size < 4) widen_row<T>(key[x], width, floats + x * pad);
  }
  for (i64 x = 0; x < STEP; x += J)
    dots_across<V, T::size>(query, rows + x, width, ahead, score + x);
}

template <class T>
static void score_tile(Direct& d, const Attention& a, const Tile& t, Ahead& ahead, i64 rows) {
  i64 lanes = across(rows), w = a.width, pad = ceil_to(w, LANES), part = w / passes_of(rows);
  for (i64 j = 0; j < t.n; j += STEP) {
    const u8* const* key = t.key + j;
    float* score = d.score + j;
    if (lanes == LANES) score_across<T, 1>(d.query, key, w, ahead, d.floats, score);
    else if (lanes) score_across<T, 2>(d.query, key, w, ahead, d.floats, score);
    if (lanes) continue;
    if (rows == 1) dots_alone<T>(d.query, key, w, ahead, score);
    i64 r = rows == 1;
    if constexpr (ROWS == 8) score_rows<T, 8>(d.query, pad, key, w, ahead, part, r, rows, score);
    score_rows<T, 4>(d.query, pad, key, w, ahead, part, r, rows, score);
    score_rows<T, 2>(d.query, pad, key, w, ahead, part, r, rows, score);
    score_rows<T, 1>(d.query, pad, key, w, ahead, part, r, rows, score);
  }
}

// ---- sums of values ----

// sums[r] = keep[r] * sums[r] + weight[r] . value, for n tokens and C columns of vectors; lines are
// fetched in the first `fetching` tokens
template <class T, i64 R, i64 C, bool PART>
INLINE void mix(const float* weight, const float* keep, const u8* const* values, i64 n, i64 column,
                i64 width, Ahead& ahead, i64 fetching, float* sums, i64 pad) {
  constexpr i64 bytes = C * LANES * T::size;
  i64 from = column * T::size;
  const u8* lines = take_lines(ahead, fetching * bytes / 64, values[0]);
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
    if (j < fetching) {
#pragma GCC unroll 8
      for (i64 x = 0; x < bytes; x += 64) fetch(lines + j * bytes + x);
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
      vf w = splat(weight[r * NEAR + j]);
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
                     i64 width, Ahead& ahead, i64 fetching, i64& r, i64 rows, float* sums,
                     i64 pad) {
  constexpr i64 C = least(SUMS / R, 8);
  for (; r + R <= rows; r += R) {
    const float *w = weight + r * NEAR, *k = keep ? keep + r : nullptr;
    float* to = sums + r * pad;
    i64 c = 0;
    for (; c + C * LANES <= width; c += C * LANES)
      mix<T, R, C, false>(w, k, values, n, c, width, ahead, fetching, to, pad);
    for (; c + 2 * LANES <= width; c += 2 * LANES)
      mix<T, R, 2, false>(w, k, values, n, c, width, ahead, fetching, to, pad);
    for (; c + LANES <= width; c += LANES)
      mix<T, R, 1, false>(w, k, values, n, c, width, ahead, fetching, to, pad);
    if (c < width) mix<T, R, 1, true>(w, k, values, n, c, width, ahead, fetching, to, pad);
  }
}

// keep: null where the sums so far stay as they are
template <class T>
static void mix_tile(Direct& d, const Attention& a, const Tile& t, Ahead& ahead, i64 rows,
                     const float* keep) {
  i64 w = a.value_width, pad = ceil_to(w, LANES), passes = passes_of(rows), r = 0;
  i64 f = (t.n + passes - 1) / passes;
  if constexpr (ROWS == 8)
    mix_rows<T, 8>(d.score, keep, t.value, t.n, w, ahead, f, r, rows, d.sums, pad);
  mix_rows<T, 4>(d.score, keep, t.value, t.n, w, ahead, f, r, rows, d.sums, pad);
  mix_rows<T, 2>(d.score, keep, t.value, t.n, w, ahead, f, r, rows, d.sums, pad);
  mix_rows<T, 1>(d.score, keep, t.value, t.n, w, ahead, f, r, rows, d.sums, pad);
}

// ---- weights ----

constexpr float HEADROOM = 8;  // weights may grow to 2^8 before all that came before is scaled

// raises the tops to the highest logits; keep[r] is what the sums of row r are worth then
static void raise_tops(Direct& d, i64 rows, i64 n) {
  for (i64 r = 0; r < rows; r++) {
    const float* row = d.score + r * NEAR;
    vf highest = load(row);
    for (i64 j = LANES; j < n; j += LANES) {
      vf x = load(row + j);
      highest = pick(x > highest, x, highest);
    }
    float top = top_of(highest);
    d.keep[r] = 1;
    if (!(top > d.top[r])) continue;
    d.keep[r] = exp2_one(d.top[r] - top);
    d.top[r] = top;
    float* total = d.total + r * LANES;
    store(total, load(total) * d.keep[r]);
  }
}

// Logits to weights. Whether the tops, and with them the sums so far, have changed: they seldom do,
// for a top need not be the highest logit, only near it.
static bool weigh_tile(Direct& d, i64 rows, i64 n) {
  vi above = {};
  for (i64 r = 0; r < rows; r++) {
    vf limit = splat(d.top[r] + HEADROOM);
    for (i64 j = 0; j < n; j += LANES) above |= load(d.score + r * NEAR + j) > limit;
  }
  bool raised = any_of(above);
  if (raised) raise_tops(d, rows, n);
  for (i64 r = 0; r < rows; r++) {
    float *row = d.score + r * NEAR, *total = d.total + r * LANES;
    vf base = splat(d.top[r] == NEVER ? 0 : d.top[r]), sum = load(total);
    for (i64 j = 0; j < n; j += LANES) {
      vf w = exp2_of(load(row + j) - base);
      store(row + j, w);
      sum += w;
    }
    store(total, sum);
  }
  return raised;
}

// ---- masks ----

// drops the tokens that no row sees, so that what is stored there is never multiplied
static void drop_unseen(Direct& d, Tile& t, i64 rows) {
  i64 kept = 0;
  for (i64 j = 0; j < t.n; j++) {
    if (!d.any[j]) continue;
    t.value[kept] = t.value[j];
    for (i64 r = 0; r < rows; r++) d.score[r * NEAR + kept] = d.score[r * NEAR + j];
    kept++;
  }
  for (i64 r = 0; r < rows; r++)
    for (i64 j = kept; j < NEAR; j++) d.score[r * NEAR + j] = NEVER;
  t.n = kept;
}

// returns whether some row sees some token of the tile
static bool mask_direct(const Attention& a, const Sequence& s, const Item& item, Direct& d,
                        Tile& t) {
  i64 group = a.heads / a.kv_heads, padded = ceil_to(t.n, LANES), before = s.length - s.queries;
  i64 first = before + item.row / group, last = before + (item.row + item.rows - 1) / group;
  if (all_see(a, s, first, last, t.at, t.n)) {
    for (i64 r = 0; r < item.rows; r++)
      for (i64 j = t.n; j < padded; j++) d.score[r * NEAR + j] = NEVER;
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
    mask(d.seen, 0, padded, d.score + r * NEAR);
  }
  i64 n = t.n, count = 0;
  for (i64 j = 0; j < n; j++) count += d.any[j] != 0;
  if (count < n) drop_unseen(d, t, item.rows);
  return count > 0;
}

INLINE void bend_tile(const Attention& a, const Sequence& s, const Item& item, const Tile& t,
                      Direct& d) {
  if (!bends(a)) return;
  i64 group = a.heads / a.kv_heads, before = s.length - s.queries;
  for (i64 r = 0; r < item.rows; r++) {
    i64 row = item.row + r;
    bend(a, t, before + row / group, item.kv_head * group + row % group, 0, ceil_to(t.n, LANES),
         d.score + r * NEAR);
  }
}

// ---- one item ----

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

static i64 direct_bytes(const Attention& a) {
  i64 wide = ceil_to(a.width, LANES) + ceil_to(a.value_width, LANES);
  return ((FEW + STEP) * wide + FEW * (NEAR + LANES) + 2 * NEAR) * 4 + (i64)sizeof(Direct) + 1024;
}

static Direct* lay_out_direct(const Attention& a, Arena& arena, float* staging) {
  i64 pad = ceil_to(a.width, LANES), pad_v = ceil_to(a.value_width, LANES);
  Direct* d = (Direct*)arena.floats((i64)sizeof(Direct) / 4);
  d->query = arena.floats(FEW * pad);
  d->sums = arena.floats(FEW * pad_v);
  d->score = arena.floats(FEW * NEAR);
  d->floats = arena.floats(STEP * pad);
  d->total = arena.floats(FEW * LANES);
  d->seen = (i32*)arena.floats(NEAR);
  d->any = (i32*)arena.floats(NEAR);
  d->staging = staging;
  return d;
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
    store(d.total + r * LANES, (vf){});
    d.top[r] = NEVER;
  }
}

template <class T>
static void direct(const Attention& a, const Item& item, const Partial& partial, Direct& d) {
  Sequence s = sequence_of(a, item.b);
  i64 rows = item.rows, pad_v = ceil_to(a.value_width, LANES), now = 0;
  i64 step = rows == 1 ? ALONE : NEAR;
  prepare<T>(a, s, item, d);
  find_tile(a, s, item, item.begin, step, d.tiles[0]);
  for (i64 at = item.begin; at < item.end; at += step, now ^= 1) {
    Tile &t = d.tiles[now], &next = d.tiles[now ^ 1];
    find_tile(a, s, item, at + step, step, next);
    Ahead ahead = ahead_of(next);
    stage(a, t, d.staging);
    score_tile<T>(d, a, t, ahead, rows);
    bend_tile(a, s, item, t, d);
    i64 padded = ceil_to(t.n, LANES);
    if (mask_direct(a, s, item, d, t)) {
      bool raised = weigh_tile(d, rows, padded);
      mix_tile<T>(d, a, t, ahead, rows, raised ? d.keep : nullptr);
    }
    fetch_lines(ahead, 1 << 20);
  }
  for (i64 r = 0; r < rows; r++) {
    join_pairs<T>(d.sums + r * pad_v, a.value_width);
    leave(a, s, item, partial, r, d.sums + r * pad_v, d.top[r], sum_of(load(d.total + r * LANES)));
  }
}
