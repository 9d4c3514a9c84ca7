// The lightning indexer on a processor: logits of index keys, and the places of the largest. The
// mathematics is that of attnctl/ops/indexer.py. No logit of a single head is ever stored.

#include "vectors.h"

struct Indexer {  // in the order of attnctl/kernels/cpu/indexer_call.py
  const u8* query;
  const float* weights;
  const u8* cache;
  const i32 *table, *starts, *lens;
  float* logits;  // [tokens][columns], written as it is; null: only picks are wanted
  i32* picks;     // null: only logits are wanted
  i64 query_type, sequences, heads, width, page, topk, blocks, tokens, pages;
  i64 query_t, query_h, weights_t, weights_h, logits_t, picks_t;  // strides in elements
  i64 cache_n;                                                    // in bytes
  i64 table_b, threads;
  double scale;
};

constexpr i64 SCALE_GROUP = 128;
constexpr i64 TOKENS = 8;                 // query tokens that share the keys made float
constexpr i64 CHUNK = 512;                // context of one piece of work
constexpr i64 WAVE_BYTES = (i64)8 << 20;  // logits at a time: they stay in the last-level cache

// ---- logits ----

struct Piece {  // query tokens [token, token + count) over context [begin, end)
  i64 b, token, count, begin, end;
};

INLINE i64 groups_of(const Indexer& a) { return (a.width + SCALE_GROUP - 1) / SCALE_GROUP; }

// the last context token that a query token sees, and one
INLINE i64 seen_by(const Indexer& a, i64 b, i64 token) {
  return a.lens[b] - (a.starts[b + 1] - token) + 1;
}

// keys of PANEL context tokens from `at` on as [width][PANEL] floats, and their scales as [groups]
// [PANEL]; past `end`: the last again. Keys stay as they are stored: few bits, so that their products
// with a query are nearly always summed without an error
static void stage_keys(const Indexer& a, i64 b, i64 at, i64 end, float* to, float* to_scales) {
  i64 groups = groups_of(a);
  const i32* pages = a.table + b * a.table_b;
  for (i64 j = 0; j < PANEL; j += 8) {
    const u8* key[8];
    for (i64 x = 0; x < 8; x++) {
      i64 place = least(at + j + x, end - 1), row = place % a.page;
      const u8* page = a.cache + pages[place / a.page] * a.cache_n;
      key[x] = page + row * a.width;
      const u8* scales = page + a.page * a.width + row * groups * 4;
      for (i64 g = 0; g < groups; g++)
        __builtin_memcpy(to_scales + g * PANEL + j + x, scales + g * 4, 4);
    }
    for (i64 d = 0; d < a.width; d += LANES) {
      vf row[8];
#pragma GCC unroll 8
      for (i64 x = 0; x < 8; x++) row[x] = read_most<E4M3>(key[x], d, a.width);
      for (i64 half = 0; half < LANES && d + half < a.width; half += 8) {
        v8 block[8];
#pragma GCC unroll 8
        for (i64 x = 0; x < 8; x++) block[x] = *(const v8_any*)((const float*)&row[x] + half);
        transpose8(block);
        i64 count = least(8, a.width - d - half);
        for (i64 x = 0; x < count; x++) *(v8*)(to + (d + half + x) * PANEL + j) = block[x];
      }
    }
  }
}

// adds weight[r] relu(query[r] . key) of R heads, for PANEL keys
template <i64 R>
INLINE void heads_of(const float* query, const float* weight, i64 width, const float* keys,
                     const float* scales, vf* total, vf* lost) {
  vf dot[R][NR] = {};
  for (i64 group = 0; group < width; group += SCALE_GROUP, scales += PANEL) {
    vf sum[R][NR] = {};
    for (i64 k = group; k < least(width, group + SCALE_GROUP); k++) {
      vf y[NR];
#pragma GCC unroll 2
      for (i64 x = 0; x < NR; x++) y[x] = *(const vf*)(keys + k * PANEL + x * LANES);
#pragma GCC unroll 16
      for (i64 r = 0; r < R; r++) {
        vf q = splat(query[r * width + k]);
#pragma GCC unroll 2
        for (i64 x = 0; x < NR; x++) sum[r][x] += q * y[x];
      }
    }
#pragma GCC unroll 16
    for (i64 r = 0; r < R; r++) {
#pragma GCC unroll 2
      for (i64 x = 0; x < NR; x++) dot[r][x] += sum[r][x] * *(const vf*)(scales + x * LANES);
    }
  }
  vf part[NR] = {};
#pragma GCC unroll 16
  for (i64 r = 0; r < R; r++) {
#pragma GCC unroll 2
    // NaN is no smaller than 0 and stays
    for (i64 x = 0; x < NR; x++) part[x] += pick(dot[r][x] < 0, (vf){}, dot[r][x]) * weight[r];
  }
#pragma GCC unroll 2
  for (i64 x = 0; x < NR; x++) {
    // Kahan's sum: heads cancel, and logits that differ little decide who is picked
    vf add = part[x] - lost[x], next = total[x] + add;
    lost[x] = (next - total[x]) - add;
    total[x] = next;
  }
}

static void panel_logits(const Indexer& a, const float* query, const float* weight,
                         const float* keys, const float* scales, float* to) {
  vf total[NR] = {}, lost[NR] = {};
  i64 h = 0;
  for (; h + MR <= a.heads; h += MR)
    heads_of<MR>(query + h * a.width, weight + h, a.width, keys, scales, total, lost);
  for (; h + 4 <= a.heads; h += 4)
    heads_of<4>(query + h * a.width, weight + h, a.width, keys, scales, total, lost);
  for (; h < a.heads; h++)
    heads_of<1>(query + h * a.width, weight + h, a.width, keys, scales, total, lost);
  for (i64 x = 0; x < NR; x++) store(to + x * LANES, total[x] * (float)a.scale);
}

template <class T>
INLINE void widen_query(const u8* from, i64 width, float* to) {
  for (i64 d = 0; d < width; d += LANES) {
    vf x = read_most<T>(from, d, width);
    if (d + LANES <= width) store(to + d, x);
    else for (i64 l = 0; d + l < width; l++) to[d + l] = x[l];
  }
}

static void stage_query(const Indexer& a, i64 token, float* query, float* weight) {
  for (i64 h = 0; h < a.heads; h++, query += a.width) {
    const u8* from = a.query + (token * a.query_t + h * a.query_h) * SIZES[a.query_type];
    weight[h] = a.weights[token * a.weights_t + h * a.weights_h];
    switch (a.query_type) {
      case TYPE_F32: widen_query<F32>(from, a.width, query); break;
      case TYPE_F16: widen_query<F16>(from, a.width, query); break;
      case TYPE_BF16: widen_query<BF16>(from, a.width, query); break;
      default: widen_query<E4M3>(from, a.width, query);
    }
  }
}

// logits of a piece to rows [token - base] of `to`, -inf where the context is not visible
static void piece_logits(const Indexer& a, const Piece& p, float* work, float* to, i64 base,
                         i64 stride) {
  i64 each = a.heads * a.width, padded = ceil_to(a.heads, 16);
  float *keys = work, *scales = keys + a.width * PANEL, *query = scales + groups_of(a) * PANEL;
  float* weight = query + ceil_to(TOKENS * each, 16);
  alignas(64) float found[PANEL];
  for (i64 t = 0; t < p.count; t++)
    stage_query(a, p.token + t, query + t * each, weight + t * padded);
  for (i64 at = p.begin; at < p.end; at += PANEL) {
    i64 n = least(PANEL, p.end - at), last = seen_by(a, p.b, p.token + p.count - 1);
    if (at < last) stage_keys(a, p.b, at, least(p.end, last), keys, scales);
    for (i64 t = 0; t < p.count; t++) {
      float* row = to + (p.token + t - base) * stride + at;
      i64 seen = most(0, least(n, seen_by(a, p.b, p.token + t) - at));
      if (seen > 0) panel_logits(a, query + t * each, weight + t * padded, keys, scales, found);
      for (i64 j = 0; j < seen; j++) row[j] = found[j];
      for (i64 j = seen; j < n; j++) row[j] = NEVER;
    }
  }
}

// ---- picks ----

// grows with the number, both zeros alike, NaN above all
INLINE u32 order_of(float x) {
  u32 b = __builtin_bit_cast(u32, x + 0.0f);
  u32 key = b >> 31 ? ~b : b | 0x80000000u;
  return x != x ? 0xffffffffu : key;
}

// the digit of the `wanted`-th largest of those counted, and how many of it are still wanted
INLINE u32 find_digit(const i32* counts, i64 digits, i64& wanted) {
  i64 d = digits - 1;
  for (; d > 0 && counts[d] < wanted; d--) wanted -= counts[d];
  return (u32)d;
}

// the K-th largest key of n >= K, and how many equal to it belong to the K largest
static u32 kth_key(const u32* keys, i64 n, i64 topk, i32* counts, i64& ties) {
  constexpr i64 shifts[] = {21, 10, 0}, bits[] = {11, 11, 10};
  u32 prefix = 0;
  ties = topk;
  for (i64 p = 0; p < 3; p++) {
    i64 digits = (i64)1 << bits[p];
    for (i64 d = 0; d < digits; d++) counts[d] = 0;
    u32 above = p ? ~0u << (shifts[p] + bits[p]) : 0;
    for (i64 j = 0; j < n; j++)
      if ((keys[j] & above) == prefix) counts[keys[j] >> shifts[p] & (u32)(digits - 1)]++;
    prefix |= find_digit(counts, digits, ties) << shifts[p];
  }
  return prefix;
}

static void pick_row(const float* logits, i64 n, i64 topk, u32* keys, i32* counts, i32* to) {
  i64 found = 0, ties = 0;
  u32 least_key = 0;
  for (i64 j = 0; j < n; j++) keys[j] = order_of(logits[j]);
  if (n > topk) least_key = kth_key(keys, n, topk, counts, ties);
  else ties = n;
  for (i64 j = 0; j < n; j++) {
    bool equal = keys[j] == least_key, taken = keys[j] > least_key || (equal && ties > 0);
    ties -= equal;
    // neither -inf nor NaN is a candidate, yet NaN takes a place, as it does in torch's sorting
    if (taken && logits[j] > NEVER) to[found++] = (i32)j;
  }
  for (; found < topk; found++) to[found] = -1;
}

// ---- waves of query tokens, so that their logits need little memory ----

struct Row {
  i64 token, seen;
};

static void run_wave(const Indexer& a, const List<Piece>& pieces, const List<Row>& rows, float* to,
                     i64 base, i64 stride) {
  int threads = (int)least(a.threads, most(pieces.count, rows.count));
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    i64 floats = (a.width + groups_of(a)) * PANEL + TOKENS * (a.heads * a.width + ceil_to(a.heads, 16)) + 64;
    Arena arena((most(floats, stride) + 2048 + 64) * 4 + 256);
    float* work = arena.floats(most(floats, stride));
    i32* counts = (i32*)arena.floats(2048);
#pragma omp for schedule(dynamic, 1)
    for (i64 x = 0; x < pieces.count; x++)
      piece_logits(a, pieces.data[x], work, to, base, stride);
    if (a.picks) {
#pragma omp for schedule(dynamic, 1)
      for (i64 x = 0; x < rows.count; x++) {
        Row row = rows.data[x];
        pick_row(to + (row.token - base) * stride, row.seen, a.topk, (u32*)work, counts,
                 a.picks + row.token * a.picks_t);
      }
    }
  }
}

static void index_all(const Indexer& a) {
  i64 longest = 1;
  for (i64 b = 0; b < a.sequences; b++)
    if (a.starts[b] < a.starts[b + 1]) longest = most(longest, a.lens[b]);
  i64 stride = a.logits ? a.logits_t : ceil_to(longest, 16);
  i64 wave = most(TOKENS, WAVE_BYTES / (stride * 4) / TOKENS * TOKENS);
  i64 total = a.sequences ? a.starts[a.sequences] : 0;
  wave = most(1, least(wave, total));
  Arena arena(a.logits ? 64 : wave * stride * 4 + 64);
  float* held = a.logits ? a.logits : arena.floats(wave * stride);
  List<Piece> pieces;
  List<Row> rows;
  i64 base = a.sequences ? a.starts[0] : 0;
  for (i64 b = 0; b < a.sequences; b++) {
    for (i64 token = a.starts[b]; token < a.starts[b + 1];) {
      i64 count = least(TOKENS, least(a.starts[b + 1] - token, base + wave - token));
      i64 end = a.logits ? a.lens[b] : seen_by(a, b, token + count - 1);
      for (i64 at = 0; at < end; at += CHUNK)
        pieces.add({b, token, count, at, least(end, at + CHUNK)});
      for (i64 t = 0; t < count; t++) rows.add({token + t, seen_by(a, b, token + t)});
      token += count;
      if (token == base + wave) {
        run_wave(a, pieces, rows, held, a.logits ? 0 : base, stride);
        pieces.count = rows.count = 0;
        base = token;
      }
    }
  }
  if (rows.count) run_wave(a, pieces, rows, held, a.logits ? 0 : base, stride);
}

// what would be read or written beyond its tensor: 0, or 4 * the sequence + why (latent_checks.py)
static i64 refusal(const Indexer& a) {
  for (i64 b = 0; b < a.sequences; b++) {
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

i64 attnctl_index(const Indexer* a) {
  i64 why = refusal(*a);
  if (!why) index_all(*a);
  return why;
}

// picks [rows][topk] of logits [rows][columns] that are there already
void attnctl_pick(const float* logits, i64 rows, i64 columns, i64 topk, i32* picks) {
  Arena arena((columns + 2048 + 64) * 4 + 256);
  u32* keys = (u32*)arena.floats(columns);
  i32* counts = (i32*)arena.floats(2048);
  for (i64 t = 0; t < rows; t++)
    pick_row(logits + t * columns, columns, topk, keys, counts, picks + t * topk);
}
}
