// Latent attention on a processor: dense, over named rows, and the merging of two states. The
// mathematics is that of attnctl/ops/mla.py, mla_sparse.py and merge_states.py.
//
// A cached row is key and value of all heads, so that a tile of rows is made float once and stays in
// the second-level cache while every head is scored against it and mixed from it.

#include "vectors.h"

enum { TYPE_PACKED = 6 };  // rank float8_e4m3fn, a float scale per 128 of them, bfloat16 behind

struct Latent {  // in the order of attnctl/kernels/cpu/latent_call.py
  const u8 *query, *cache;
  u8* out;
  float* lse;
  const i32 *table, *starts, *lens;  // of sequences
  const i32* slots;                  // of query tokens; null: dense
  i64 query_type, cache_type, owners, heads, rank, width, page, blocks, tokens, pages;
  i64 query_t, query_h, out_t, out_h, lse_t, lse_h;  // strides in elements
  i64 cache_n, cache_p;                              // strides in bytes
  i64 table_b, slots_t, listed, threads;
  double scale, kv_scale;
};

struct States {
  const u8 *out_a, *out_b;
  const float *lse_a, *lse_b;
  u8* out;
  float* lse;
  i64 type_a, type_b, type, tokens, heads, width;
  i64 a_t, a_h, b_t, b_h, out_t, out_h, lse_a_t, lse_a_h, lse_b_t, lse_b_h, lse_t, lse_h;
  i64 threads;
};

// ---- tiles of cached rows ----

constexpr i64 TILE = 96;        // rows; a multiple of LANES and of what dots() takes at a time
constexpr i64 ROWS = 128;       // of queries at a time: heads of one token or of several
constexpr i64 SCALE_GROUP = 128;

struct Tile {
  i64 at, n;
  const u8* stored[TILE];
};

// an owner is a sequence, or one query token where slots are named
struct Owner {
  i64 index, first, queries, length;
};

INLINE Owner owner_of(const Latent& a, i64 index) {
  if (a.slots) return {index, index, 1, a.listed};
  return {index, a.starts[index], (i64)a.starts[index + 1] - a.starts[index], a.lens[index]};
}

// the rows of positions [at, end), at most TILE; returns the position behind them
static i64 find_tile(const Latent& a, const Owner& o, i64 at, i64 end, Tile& t) {
  t.at = at;
  t.n = 0;
  if (a.slots) {
    const i32* slots = a.slots + o.index * a.slots_t;
    i64 total = a.blocks * a.page;
    for (; at < end && t.n < TILE; at++) {
      i64 slot = slots[at];
      if (slot < 0 || slot >= total) continue;
      t.stored[t.n++] = a.cache + slot / a.page * a.cache_n + slot % a.page * a.cache_p;
    }
    return at;
  }
  const i32* pages = a.table + o.index * a.table_b;
  end = least(end, at + TILE);
  while (at < end) {
    i64 row = at % a.page, stop = least(end, at + a.page - row);
    const u8* from = a.cache + pages[at / a.page] * a.cache_n + row * a.cache_p;
    for (; at < stop; at++, from += a.cache_p) t.stored[t.n++] = from;
  }
  return at;
}

template <class T>
INLINE void widen_row(const u8* from, i64 width, float* to) {
  i64 d = 0;
  for (; d + LANES <= width; d += LANES) store(to + d, T::read(from + d * T::size));
  if (d < width) store(to + d, read_part<T>(from + d * T::size, width - d));
}

INLINE void unpack_row(const u8* from, i64 rank, i64 width, float* to) {
  const u8* scales = from + rank;
  for (i64 d = 0; d < rank; d += LANES) {
    float scale;
    __builtin_memcpy(&scale, scales + d / SCALE_GROUP * 4, 4);
    store(to + d, E4M3::read(from + d) * scale);
  }
  widen_row<BF16>(scales + rank / SCALE_GROUP * 4, width - rank, to + rank);
}

// rows as floats, padded to lanes with zeros; float rows of whole vectors stay where they are
static void stage(const Latent& a, const Tile& t, float* to, const float** rows) {
  i64 pad = ceil_to(a.width, LANES);
  bool direct = a.cache_type == TYPE_F32 && a.width % LANES == 0;
  for (i64 j = 0; j < t.n; j++, to += pad) {
    const u8* from = t.stored[j];
    rows[j] = direct ? (const float*)from : to;
    if (direct) continue;
    switch (a.cache_type) {
      case TYPE_F32: widen_row<F32>(from, a.width, to); break;
      case TYPE_F16: widen_row<F16>(from, a.width, to); break;
      case TYPE_BF16: widen_row<BF16>(from, a.width, to); break;
      case TYPE_E4M3: widen_row<E4M3>(from, a.width, to); break;
      case TYPE_E5M2: widen_row<E5M2>(from, a.width, to); break;
      default: unpack_row(from, a.rank, a.width, to);
    }
  }
  // read and thrown away
  for (i64 j = t.n; j < ceil_to(t.n, TILE); j++) rows[j] = rows[t.n - 1];
}

INLINE i64 row_bytes(const Latent& a) {
  if (a.cache_type != TYPE_PACKED) return a.width * SIZES[a.cache_type];
  return a.rank + a.rank / SCALE_GROUP * 4 + 2 * (a.width - a.rank);
}

// ---- the two products ----

#if defined(__AVX512F__)
constexpr i64 AT_ONCE = 24;  // accumulators
#else
constexpr i64 AT_ONCE = 12;
#endif

// score[r][x] = q[r] . rows[x]
template <i64 R, i64 J>
INLINE void dots(const float* q, i64 pad, const float* const* rows, float* score) {
  constexpr i64 COUNT = R * J;
  vf sum[(COUNT + 7) / 8 * 8] = {};
  const float* key[J];
#pragma GCC unroll 16
  for (i64 x = 0; x < J; x++) key[x] = rows[x];
  for (i64 d = 0; d < pad; d += LANES) {
    vf k[J];
#pragma GCC unroll 16
    for (i64 x = 0; x < J; x++) k[x] = load(key[x] + d);
#pragma GCC unroll 4
    for (i64 r = 0; r < R; r++) {
      vf y = *(const vf*)(q + r * pad + d);
      IN_REGISTER(y);
#pragma GCC unroll 16
      for (i64 x = 0; x < J; x++) sum[r * J + x] += y * k[x];
    }
  }
#pragma GCC unroll 4
  for (i64 g = 0; g < COUNT; g += 8) {
    v8 s = sums_of(sum + g);
#pragma GCC unroll 8
    for (i64 x = 0; x < 8 && g + x < COUNT; x++) score[(g + x) / J * TILE + (g + x) % J] = s[x];
  }
}

template <i64 R>
static void score_rows(const float* q, i64 pad, const float* const* rows, i64 n, float* score) {
  constexpr i64 J = AT_ONCE / R > 8 ? 8 : AT_ONCE / R;
  static_assert(TILE % J == 0, "a tile is a whole number of steps");
  for (i64 j = 0; j < n; j += J) dots<R, J>(q, pad, rows + j, score + j);
}

// sums[r] = keep[r] sums[r] + weight[r] . rows, C vectors of columns
template <i64 R, i64 C>
INLINE void mix(const float* weight, const float* keep, const float* const* rows, i64 column, i64 n,
                float* sums, i64 stride) {
  vf sum[R][C];
#pragma GCC unroll 4
  for (i64 r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (i64 c = 0; c < C; c++)
      sum[r][c] = load(sums + r * stride + column + c * LANES) * keep[r];
  }
  for (i64 j = 0; j < n; j++) {
    const float* value = rows[j] + column;
    vf v[C];
#pragma GCC unroll 8
    for (i64 c = 0; c < C; c++) v[c] = load(value + c * LANES);
#pragma GCC unroll 4
    for (i64 r = 0; r < R; r++) {
      vf w = splat(weight[r * TILE + j]);
      IN_REGISTER(w);
#pragma GCC unroll 8
      for (i64 c = 0; c < C; c++) sum[r][c] += w * v[c];
    }
  }
#pragma GCC unroll 4
  for (i64 r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (i64 c = 0; c < C; c++) store(sums + r * stride + column + c * LANES, sum[r][c]);
  }
}

// ---- one item: some rows of queries over some of the context ----

struct Item {
  i64 owner, row, rows, begin, end;
  i64 part;  // where its partial results begin, in rows; -1: it writes the output itself
};

struct Partial {  // [rows] of the rank padded to lanes
  float *sums, *top, *total;
  i64 stride;
};

struct Work {
  float *query, *sums, *score, *staging, *top, *total, *keep;
  const float* rows[TILE];
  Tile tiles[2];
};

// fetches lines of the next tile's rows, some at each call
struct Fetch {
  const Tile* tile;
  i64 lines, next, step;
};

INLINE void fetch_some(Fetch& f) {
  if (!f.tile) return;
  i64 stop = least(f.next + f.step, f.tile->n * f.lines);
  for (; f.next < stop; f.next++)
    __builtin_prefetch(f.tile->stored[f.next / f.lines] + f.next % f.lines * 64, 0, 2);
}

template <i64 C>
static void mix_columns(Work& w, i64 rows, i64& column, i64 width, i64 n, i64 stride, Fetch& f) {
  for (; column + C * LANES <= width; column += C * LANES) {
    i64 r = 0;
    for (; r + 4 <= rows; r += 4)
      mix<4, C>(w.score + r * TILE, w.keep + r, w.rows, column, n, w.sums + r * stride, stride);
    for (; r + 2 <= rows; r += 2)
      mix<2, C>(w.score + r * TILE, w.keep + r, w.rows, column, n, w.sums + r * stride, stride);
    for (; r < rows; r++)
      mix<1, C>(w.score + r * TILE, w.keep + r, w.rows, column, n, w.sums + r * stride, stride);
    fetch_some(f);
  }
}

static void mix_all(Work& w, i64 rows, i64 width, i64 n, i64 stride, Fetch& f) {
  constexpr i64 C = AT_ONCE / 4;
  i64 column = 0;
  // one row has too few sums to hide their latency unless it takes more columns
  if (rows == 1) mix_columns<8>(w, rows, column, width, n, stride, f);
  mix_columns<C>(w, rows, column, width, n, stride, f);
  mix_columns<2>(w, rows, column, width, n, stride, f);
  mix_columns<1>(w, rows, column, width, n, stride, f);
}

static void score_all(const Latent& a, Work& w, i64 rows, i64 n) {
  i64 pad = ceil_to(a.width, LANES), r = 0;
  for (; r + 4 <= rows; r += 4) score_rows<4>(w.query + r * pad, pad, w.rows, n, w.score + r * TILE);
  for (; r + 2 <= rows; r += 2) score_rows<2>(w.query + r * pad, pad, w.rows, n, w.score + r * TILE);
  for (; r < rows; r++) score_rows<1>(w.query + r * pad, pad, w.rows, n, w.score + r * TILE);
}

// weights of the tile's rows; what a query does not see, and what lies past the tile, weighs nothing
static void weigh_all(const Latent& a, const Owner& o, const Item& item, const Tile& t, Work& w) {
  i64 padded = ceil_to(t.n, LANES);
  for (i64 r = 0; r < item.rows; r++) {
    i64 seen = t.n;
    if (!a.slots)
      seen = most(0, least(seen, o.length - o.queries + (item.row + r) / a.heads + 1 - t.at));
    float* row = w.score + r * TILE;
    for (i64 j = seen; j < padded; j++) row[j] = NEVER;
    w.keep[r] = weigh(row, 0, padded, w.top[r], w.total[r]);
  }
}

template <class T>
INLINE void query_row(const u8* from, i64 width, i64 pad, float factor, float* to) {
  widen_row<T>(from, width, to);
  for (i64 d = 0; d < pad; d += LANES) store(to + d, load(to + d) * factor);
}

static void begin_rows(const Latent& a, const Owner& o, const Item& item, Work& w) {
  i64 pad = ceil_to(a.width, LANES), stride = ceil_to(a.rank, LANES);
  i64 size = SIZES[a.query_type];
  float factor = (float)(a.scale * a.kv_scale * 1.44269504088896341);
  for (i64 r = 0; r < item.rows; r++) {
    i64 row = item.row + r, token = o.first + row / a.heads, head = row % a.heads;
    const u8* from = a.query + (token * a.query_t + head * a.query_h) * size;
    float* to = w.query + r * pad;
    if (a.query_type == TYPE_F32) query_row<F32>(from, a.width, pad, factor, to);
    else if (a.query_type == TYPE_F16) query_row<F16>(from, a.width, pad, factor, to);
    else query_row<BF16>(from, a.width, pad, factor, to);
    for (i64 d = 0; d < stride; d += LANES) store(w.sums + r * stride + d, (vf){});
    w.top[r] = NEVER;
    w.total[r] = 0;
  }
}

// a row's sums to the output, or zeros where it saw nothing
static void finish(const Latent& a, i64 token, i64 head, const float* sums, float top,
                   float total) {
  u8* to = a.out + (token * a.out_t + head * a.out_h) * SIZES[a.query_type];
  if (total == 0) put_zeros(to, a.rank, a.query_type);
  else put_row(to, sums, a.rank, (float)a.kv_scale / total, a.query_type);
  a.lse[token * a.lse_t + head * a.lse_h] = natural_lse(top, total);
}

static void leave(const Latent& a, const Owner& o, const Item& item, const Partial& partial,
                  const Work& w) {
  i64 stride = ceil_to(a.rank, LANES);
  for (i64 r = 0; r < item.rows; r++) {
    const float* sums = w.sums + r * stride;
    if (item.part < 0) {
      i64 row = item.row + r;
      finish(a, o.first + row / a.heads, row % a.heads, sums, w.top[r], w.total[r]);
      continue;
    }
    i64 at = item.part + r;
    __builtin_memcpy(partial.sums + at * stride, sums, (usize)(stride * 4));
    partial.top[at] = w.top[r];
    partial.total[at] = w.total[r];
  }
}

static void attend_item(const Latent& a, const Item& item, const Partial& partial, Work& w) {
  Owner o = owner_of(a, item.owner);
  i64 stride = ceil_to(a.rank, LANES), lines = (row_bytes(a) + 63) / 64;
  begin_rows(a, o, item, w);
  i64 at = find_tile(a, o, item.begin, item.end, w.tiles[0]);
  for (i64 now = 0; w.tiles[now].n; now ^= 1) {
    Tile &t = w.tiles[now], &next = w.tiles[now ^ 1];
    at = find_tile(a, o, at, item.end, next);
    i64 steps = stride / LANES * 4 / AT_ONCE;
    Fetch fetch = {next.n ? &next : nullptr, lines, 0, next.n * lines / most(steps, 1) + 1};
    stage(a, t, w.staging, w.rows);
    score_all(a, w, item.rows, t.n);
    weigh_all(a, o, item, t, w);
    mix_all(w, item.rows, stride, t.n, stride, fetch);
  }
  leave(a, o, item, partial, w);
}

// ---- the plan: which thread does what ----

struct Merge {
  i64 owner, row, rows, part, splits;
};

constexpr i64 SHORTEST = 4 * TILE;  // context that is worth a part of its own

// one entry an owner and block of rows, the last rows first: they see most
static double list_items(const Latent& a, List<Item>& items) {
  double cost = 0;
  for (i64 x = 0; x < a.owners; x++) {
    Owner o = owner_of(a, x);
    i64 rows = o.queries * a.heads;
    for (i64 row = rows > 0 ? (rows - 1) / ROWS * ROWS : -1; row >= 0; row -= ROWS) {
      i64 count = least(ROWS, rows - row);
      i64 end = a.slots ? o.length : o.length - o.queries + (row + count - 1) / a.heads + 1;
      items.add({x, row, count, 0, end, -1});
      cost += (double)count * (double)end;
    }
  }
  return cost;
}

// cuts long items into parts where there are too few of them for the threads
static i64 split_items(const Latent& a, const List<Item>& items, double cost, List<Item>& parts,
                       List<Merge>& merges) {
  i64 used = 0, wanted = a.threads * 4;
  for (i64 x = 0; x < items.count; x++) {
    Item item = items.data[x];
    i64 splits = 1;
    if (a.threads > 1 && items.count < wanted) {
      splits = (i64)((double)item.end * (double)item.rows / (cost / (double)wanted) + 0.5);
      splits = most(1, least(splits, item.end / SHORTEST));
    }
    if (splits == 1) {
      parts.add(item);
      continue;
    }
    i64 step = ceil_to((item.end + splits - 1) / splits, TILE);
    splits = (item.end + step - 1) / step;
    merges.add({item.owner, item.row, item.rows, used, splits});
    for (i64 n = 0; n < splits; n++, used += item.rows)
      parts.add({item.owner, item.row, item.rows, n * step, least(item.end, (n + 1) * step), used});
  }
  return used;
}

static void merge(const Latent& a, const Merge& m, const Partial& p) {
  Owner o = owner_of(a, m.owner);
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
      for (i64 d = 0; d < p.stride; d += LANES)
        store(sums + d, (n ? load(sums + d) : (vf){}) + load(from + d) * keep);
    }
    i64 row = m.row + r;
    finish(a, o.first + row / a.heads, row % a.heads, sums, top, total);
  }
}

static void lay_out(const Latent& a, Arena& arena, Work& w) {
  i64 pad = ceil_to(a.width, LANES), stride = ceil_to(a.rank, LANES);
  w.query = arena.floats(ROWS * pad);
  w.sums = arena.floats(ROWS * stride);
  w.score = arena.floats(ROWS * TILE);
  w.staging = arena.floats(TILE * pad);
  w.top = arena.floats(ROWS);
  w.total = arena.floats(ROWS);
  w.keep = arena.floats(ROWS);
}

static void attend(const Latent& a) {
  List<Item> items, parts;
  List<Merge> merges;
  double cost = list_items(a, items);
  if (!items.count) return;
  i64 used = split_items(a, items, cost, parts, merges);
  i64 pad = ceil_to(a.width, LANES), stride = ceil_to(a.rank, LANES);
  Arena shared((used * (stride + 2) + 48) * 4 + 256);
  float* sums = shared.floats(used * stride);
  Partial partial = {sums, shared.floats(used), shared.floats(used), stride};
  int threads = (int)least(a.threads, parts.count);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Arena arena((ROWS * (pad + stride + TILE + 3) + TILE * pad) * 4 + 512);
    Work w;
    lay_out(a, arena, w);
#pragma omp for schedule(dynamic, 1)
    for (i64 x = 0; x < parts.count; x++) attend_item(a, parts.data[x], partial, w);
#pragma omp for schedule(dynamic, 1)
    for (i64 x = 0; x < merges.count; x++) merge(a, merges.data[x], partial);
  }
}

// ---- merging two states ----

template <class T>
INLINE vf scaled(const u8* from, i64 d, i64 width, float share) {
  return share == 0 ? (vf){} : read_most<T>(from, d, width) * share;
}

INLINE vf scaled_of(i64 type, const u8* from, i64 d, i64 width, float share) {
  if (type == TYPE_F32) return scaled<F32>(from, d, width, share);
  if (type == TYPE_F16) return scaled<F16>(from, d, width, share);
  return scaled<BF16>(from, d, width, share);
}

static void merge_row(const States& s, i64 token, i64 head) {
  float a = s.lse_a[token * s.lse_a_t + head * s.lse_a_h];
  float b = s.lse_b[token * s.lse_b_t + head * s.lse_b_h];
  // some libraries write +inf where nothing was seen
  a = a == -NEVER ? NEVER : a;
  b = b == -NEVER ? NEVER : b;
  float top = a > b || a != a ? a : b;
  float base = top == NEVER ? 0 : top;
  float weight_a = exp2_one((a - base) * LOG2E), weight_b = exp2_one((b - base) * LOG2E);
  float total = weight_a + weight_b;
  s.lse[token * s.lse_t + head * s.lse_h] = total == 0 ? NEVER : base + natural_log(total);
  float share_a = total == 0 ? 0 : weight_a / total, share_b = total == 0 ? 0 : weight_b / total;
  const u8* from_a = s.out_a + (token * s.a_t + head * s.a_h) * SIZES[s.type_a];
  const u8* from_b = s.out_b + (token * s.b_t + head * s.b_h) * SIZES[s.type_b];
  u8* to = s.out + (token * s.out_t + head * s.out_h) * SIZES[s.type];
  alignas(64) float part[LANES];
  for (i64 d = 0; d < s.width; d += LANES) {
    store(part, scaled_of(s.type_a, from_a, d, s.width, share_a) +
                    scaled_of(s.type_b, from_b, d, s.width, share_b));
    put_row(to + d * SIZES[s.type], part, least(LANES, s.width - d), 1.0f, s.type);
  }
}

// what would be read or written beyond its tensor: 0, or 4 * the sequence + why (latent_checks.py)
static i64 refusal(const Latent& a) {
  for (i64 b = 0; !a.slots && b < a.owners; b++) {
    i64 queries = (i64)a.starts[b + 1] - a.starts[b], length = a.lens[b];
    if (a.starts[b] < 0 || queries < 0 || a.starts[b + 1] > a.tokens) return 4 * b + 1;
    if (!queries) continue;
    if (length < queries || length > a.pages * a.page) return 4 * b + 2;
    for (i64 p = 0; p * a.page < length; p++) {
      i64 block = a.table[b * a.table_b + p];
      if (block < 0 || block >= a.blocks) return 4 * b + 3;
    }
  }
  return 0;
}

extern "C" {

i64 attnctl_latent(const Latent* a) {
  i64 why = refusal(*a);
  if (!why) attend(*a);
  return why;
}

void attnctl_merge_states(const States* s) {
  i64 rows = s->tokens * s->heads;
#pragma omp parallel for num_threads((int)s->threads) if (rows > 64 && s->threads > 1)
  for (i64 x = 0; x < rows; x++) merge_row(*s, x / s->heads, x % s->heads);
}
}
