// Paged attention and cache writes on a processor. The mathematics is that of attnctl/ops/paged.py.
// Threads are OpenMP's. Addresses are 64-bit. Logits are kept in base 2: exp(x) = 2^(x log2 e).

#include "amx.h"
#include "paged_ahead.h"
#include "paged_amx.h"
#include "paged_amx_layout.h"
#include "paged_amx_weights.h"
#include "paged_call.h"
#include "paged_few.h"
#include "paged_many.h"
#include "paged_scores.h"
#include "paged_shared.h"
#include "paged_tiles.h"
#include "paged_weights.h"
#include "vectors.h"

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

constexpr i64 SHORTEST = 256;       // tokens of context that are worth a part of their own
constexpr i64 PARTS = 4;            // of all the work, for each thread
constexpr i64 DIRECT_IN_TILES = 8;  // rows that gain nothing by tiles

// one list entry a sequence, KV head and block of rows, the longest last rows first
static void list_items(const Attention& a, bool tiles, List<Item>& items, double& cost) {
  i64 group = a.heads / a.kv_heads, block = tiles ? rows_in_tiles(a) : rows_at_a_time(a);
  i64 directly = a.direct_rows < 0 ? (tiles ? DIRECT_IN_TILES : FEW) : least(a.direct_rows, FEW);
  for (i64 b = 0; b < a.sequences; b++) {
    Sequence s = sequence_of(a, b);
    i64 rows = s.queries * group;
    bool few = rows <= directly && a.width <= WIDEST && a.value_width <= WIDEST;
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
  bool tiles = in_tiles<T>(a);
  list_items(a, tiles, items, cost);
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
    i64 many = !rows ? 0 : tiles ? tiled_bytes(a, most_rows) : packed_bytes(a, rows);
    Arena arena((staging + 64) * 4 + direct_bytes(a) + many);
    Packed p;
    p.staging = arena.floats(staging);
    Direct* d = lay_out_direct(a, arena, p.staging);
    Tiled* in_tile = nullptr;
    if (rows && tiles) in_tile = lay_out_tiled(a, most_rows, arena), open_tiles();
    else if (rows) lay_out(a, rows, arena, p);
#pragma omp for schedule(dynamic, 1)
    for (i64 x = 0; x < parts.count; x++) {
      if (!parts.data[x].packed) direct<T>(a, parts.data[x], partial, *d);
      else if (tiles) tiled(a, parts.data[x], partial, *in_tile);
      else packed<T>(a, parts.data[x], partial, p);
    }
    if (in_tile) close_tiles();
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
