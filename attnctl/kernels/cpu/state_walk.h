// What the state-space operations of a processor share: batches, rows of numbers, functions, and
// the two ways to take a sequence through a state, token by token and many tokens at once.

#pragma once

#include "vectors.h"

// ---- what every call has: in the order of attnctl/kernels/cpu/state_pack.py ----

struct View {  // rows of a tensor: token t's of head h begins at t * t_step + h * h_step elements
  u8* data;
  i64 type, t_step, h_step;
};

struct Batch {
  const i32 *starts, *slots, *accepted;
  const u8 *known, *verified;
  i64 sequences, columns, most_accepted, tokens, slot_count, threads;
};

struct Pool {
  u8* data;
  i64 type, slot_step;
};

// ---- the batch ----

struct Row {
  const i32* slots;
  i64 first, count, initial;  // initial: the slot of the state that it begins with, -1: zero
  bool verified;
};

INLINE Row row_of(const Batch& a, i64 b) {
  Row row = {a.slots + b * a.columns, a.starts[b], (i64)a.starts[b + 1] - a.starts[b], -1, false};
  if (row.slots[0] < 0) row.count = 0;
  if (row.count > 0 && a.known[b])
    row.initial = row.slots[a.accepted ? least(a.accepted[b], a.columns) - 1 : 0];
  row.verified = a.verified && a.verified[b];
  return row;
}

// the slot that keeps the state after the row's token t, -1: none does
INLINE i64 keep_of(const Batch& a, const Row& row, i64 t) {
  if (!row.verified) return t == row.count - 1 ? row.slots[0] : -1;
  return t < a.columns ? row.slots[t] : -1;
}

enum { GOOD, BAD_STARTS, BAD_SLOT, BAD_ACCEPTED };

// GOOD, or what is wrong + 8 * the row that it is wrong in
static i64 check(const Batch& a, i64 columns) {
  if (a.sequences > 0 && a.starts[0] < 0) return BAD_STARTS;
  for (i64 b = 0; b < a.sequences; b++) {
    if (a.starts[b + 1] < a.starts[b] || a.starts[b + 1] > a.tokens) return BAD_STARTS + 8 * b;
    const i32* slots = a.slots + b * a.columns;
    if (slots[0] < 0 || a.starts[b + 1] == a.starts[b]) continue;
    for (i64 c = 0; c < columns; c++)
      if (slots[c] >= a.slot_count) return BAD_SLOT + 8 * b;
    bool counted = a.accepted && a.known[b];
    if (counted && (a.accepted[b] < 1 || a.accepted[b] > a.most_accepted))
      return BAD_ACCEPTED + 8 * b;
  }
  return GOOD;
}

// the rows that have tokens and are not padding
struct Live {
  i32* rows;
  i64 count = 0, longest = 0, tokens = 0;
  explicit Live(const Batch& a) {
    rows = (i32*)__builtin_malloc((usize)(a.sequences + 1) * sizeof(i32));
    for (i64 b = 0; b < a.sequences; b++) {
      i64 n = row_of(a, b).count;
      if (n <= 0) continue;
      rows[count++] = (i32)b;
      longest = most(longest, n);
      tokens += n;
    }
  }
  ~Live() { __builtin_free(rows); }
};

// ---- rows of numbers ----

INLINE const u8* place(const View& v, i64 token, i64 head, i64 at) {
  return v.data + (token * v.t_step + head * v.h_step + at) * SIZES[v.type];
}

template <class T>
INLINE void read_as(const u8* from, i64 n, float* to, i64 padded) {
  i64 i = 0;
  for (; i + LANES <= n; i += LANES) store(to + i, T::read(from + i * T::size));
  if (i < n) {
    store(to + i, read_part<T>(from + i * T::size, n - i));
    i += LANES;
  }
  for (; i < padded; i += LANES) store(to + i, (vf){});
}

// n numbers as float, zeros behind up to `padded`, which is a multiple of LANES
static void read_row(const u8* from, i64 type, i64 n, float* to, i64 padded) {
  if (type == TYPE_F32) read_as<F32>(from, n, to, padded);
  else if (type == TYPE_F16) read_as<F16>(from, n, to, padded);
  else read_as<BF16>(from, n, to, padded);
}

INLINE void read_view(const View& v, i64 token, i64 head, i64 at, i64 n, float* to, i64 padded) {
  read_row(place(v, token, head, at), v.type, n, to, padded);
}

INLINE float read_number(const View& v, i64 token, i64 head) {
  const u8* from = place(v, token, head, 0);
  if (v.type == TYPE_F32) return *(const float*)from;
  return v.type == TYPE_F16 ? read_part<F16>(from, 1)[0] : read_part<BF16>(from, 1)[0];
}

static void write_row(u8* to, i64 type, i64 n, const float* from) {
  i64 i = 0;
  if (type == TYPE_F32) {
    __builtin_memcpy(to, from, (usize)n * 4);
    return;
  }
  if (type == TYPE_BF16) {
    for (; i + LANES <= n; i += LANES) *(vh_any*)(to + 2 * i) = to_bf16s(load(from + i));
  } else {
    for (; i + LANES <= n; i += LANES) *(vh_any*)(to + 2 * i) = to_halves(load(from + i));
  }
  for (; i < n; i++) put(to, i, from[i], type);
}

INLINE void write_view(const View& v, i64 token, i64 head, i64 at, i64 n, const float* from) {
  write_row((u8*)place(v, token, head, at), v.type, n, from);
}

INLINE u8* slot_at(const Pool& p, i64 slot, i64 at) {
  return p.data + (slot * p.slot_step + at) * SIZES[p.type];
}

// ---- functions of numbers ----

// x between two numbers; NaN stays NaN
#if defined(__AVX512F__) && !defined(__clang__)
INLINE vf within(vf x, float low, float high) {
  x = __builtin_ia32_maxps512_mask(splat(low), x, x, (u16)-1, 4);
  return __builtin_ia32_minps512_mask(splat(high), x, x, (u16)-1, 4);
}
#elif defined(__AVX__) && !defined(__AVX512F__)
INLINE vf within(vf x, float low, float high) {
  return __builtin_ia32_minps256(splat(high), __builtin_ia32_maxps256(splat(low), x));
}
#else
INLINE vf within(vf x, float low, float high) {
  x = x < splat(low) ? splat(low) : x;
  return x > splat(high) ? splat(high) : x;
}
#endif

// 2^x: 0 is 2^-126, NaN stays NaN
INLINE vf power_of(vf x) {
  vf z = within(x, -126.0f, 128.0f), magic = splat(12582912.0f);  // see exp2_of
  vf r = z + magic;
  vf f = z - (r - magic), g = f * f;
  vf p = (1.5337577e-4f * g + (1.33998599e-3f * f + 9.61851981e-3f)) * g;
  p = (p + (5.55032901e-2f * f + 2.40226462e-1f)) * g + (6.93147182e-1f * f + 1.0f);
  return p * (vf)(((vi)r - 0x4B400000 + 127) << 23);
}

INLINE vf exp_of(vf x) { return power_of(x * LOG2E); }

INLINE vf silu_of(vf x) { return x / (1.0f + power_of(x * -LOG2E)); }

// log(1 + e^x) = max(x, 0) + log1p(e^-|x|), where log1p(t) = 2 atanh(t / (2 + t))
INLINE vf softplus_of(vf x) {
  vf t = exp_of(-(vf)((vi)x & 0x7fffffff));
  vf s = t / (2.0f + t), z = s * s;
  vf p = splat(1.0f / 15);
  p = p * z + 1.0f / 13;
  p = p * z + 1.0f / 11;
  p = p * z + 1.0f / 9;
  p = p * z + 1.0f / 7;
  p = p * z + 1.0f / 5;
  p = p * z + 1.0f / 3;
  vf tail = 2.0f * s + 2.0f * s * z * p;
  return tail + (x > (vf){} ? x : (vf){});
}

template <class Function>
INLINE void over(float* x, i64 n, Function function) {
  for (i64 i = 0; i < n; i += LANES) store(x + i, function(load(x + i)));
}

INLINE float dot(const float* a, const float* b, i64 n) {
  vf sum = {};
  for (i64 i = 0; i < n; i += LANES) sum += load(a + i) * load(b + i);
  return sum_of(sum);
}

// ---- work for threads ----

// how many parts to cut `rows` into, so that there is enough to do for every thread
INLINE i64 parts_of(i64 rows, i64 least_rows, i64 items, i64 threads) {
  i64 wanted = threads > 1 ? (4 * threads + items - 1) / most(items, 1) : 1;
  return most(1, least(wanted, rows / least_rows));
}

// threads that are worth waking: each has work for some microseconds
INLINE int team(i64 threads, i64 items, double operations) {
  return (int)least(least(threads, items), 1 + (i64)(operations / 100000));
}

INLINE i64 share(i64 items, i64 threads) { return most(1, items / (16 * threads)); }

// ---- states whose rows are contracted with the token's: one token after the other ----

constexpr i64 CHUNK = 8;   // tokens that are made ready together
constexpr i64 GROUP = 8;   // rows of a state that advance together
constexpr i64 AHEAD = 512;   // numbers of a state that are asked for before they are needed
constexpr i64 NEAR = 2048;  // numbers of a state that stay in the first-level cache for a chunk

struct Stretch {  // CHUNK tokens of one sequence and head, rows begin to end - 1 of its state
  i64 first, count, head, begin, end;
};

// Runs a sequence through rows [begin, end) of one head's state. Op: width, make_ready(stretch),
// step(j, rows, from, from_step, to, to_step), finish(stretch).
template <class Op>
static void recur(Op& op, const Batch& batch, const Pool& pool, const Row& row, i64 head, i64 rows,
                  i64 begin, i64 end) {
  i64 width = op.width, wide = ceil_to(width, LANES), n = end - begin, padded = ceil_to(n, GROUP);
  i64 block = most(GROUP, NEAR / wide / GROUP * GROUP), at = (head * rows + begin) * width;
  i64 size = SIZES[pool.type], last = keep_of(batch, row, 0);
  float* carried = op.carried;
  // a single token's state goes from slot to slot
  bool direct = row.count == 1 && pool.type == TYPE_F32 && last >= 0;
  direct = direct && wide == width && padded == n;
  for (i64 t = 0; t < row.count; t += CHUNK) {
    Stretch s = {row.first + t, least(CHUNK, row.count - t), head, begin, end};
    op.make_ready(s);
    if (direct) {
      const float* from = row.initial < 0 ? op.zeros : (float*)slot_at(pool, row.initial, at);
      op.step(0, {0, n}, from, row.initial < 0 ? 0 : width, (float*)slot_at(pool, last, at), width);
      op.finish(s);
      return;
    }
    for (i64 r = 0; r < padded; r += block) {
      i64 stop = least(r + block, padded), real = least(stop, n);
      for (i64 i = r; t == 0 && i < stop; i++) {
        i64 known = i < real && row.initial >= 0 ? width : 0;
        const u8* from = known ? slot_at(pool, row.initial, at) + i * width * size : nullptr;
        read_row(from, pool.type, known, carried + i * wide, wide);
      }
      for (i64 j = 0; j < s.count; j++) {
        op.step(j, {r, stop}, carried, wide, carried, wide);
        i64 kept = keep_of(batch, row, t + j);
        for (i64 i = r; kept >= 0 && i < real; i++) {
          u8* to = slot_at(pool, kept, at) + i * width * size;
          write_row(to, pool.type, width, carried + i * wide);
        }
      }
    }
    op.finish(s);
  }
}

struct Range {
  i64 begin, end;
};

// Every sequence, head and part of a head's rows. rows: of a head; least_rows: of a part, which has
// a multiple of them; per_token: operations. Op: together(call, live), the heads that one item
// takes, and run(row, head, begin, end) for those from `head` on.
template <class Op, class Call>
static void run_all(const Call& call, i64 heads, i64 rows, i64 least_rows, double per_token) {
  const Batch& batch = call.batch;
  Live live(batch);
  if (!live.count) return;
  i64 together = Op::together(call, live);
  heads /= together;
  i64 parts = parts_of(rows, least_rows, live.count * heads, batch.threads);
  i64 step = ceil_to((rows + parts - 1) / parts, least_rows);
  parts = (rows + step - 1) / step;
  i64 items = live.count * heads * parts;
  int threads = team(batch.threads, items, per_token * (double)live.tokens);
  i64 chunk = share(items, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Arena arena(Op::bytes(call, least(step, rows), together));
    Op op(call, least(step, rows), together, arena);
#pragma omp for schedule(dynamic, chunk)
    for (i64 x = 0; x < items; x++) {
      i64 part = x % parts, head = x / parts % heads * together;
      Row row = row_of(batch, live.rows[x / parts / heads]);
      op.run(row, head, part * step, least(rows, (part + 1) * step));
    }
  }
}

// ---- many tokens at once: attention without softmax whose weights decay with distance ----

constexpr i64 SPAN = 24;                      // tokens; a multiple of MR
constexpr i64 ACROSS = ceil_to(SPAN, PANEL);  // the same in whole panels
constexpr i64 WORTHWHILE = 12;                // a shorter row goes token by token
constexpr i64 TOGETHER = 65536;               // numbers of the states of heads that share keys

// Heads of one group advance together: they share queries, keys and the products of the two.
// Source: read_query and read_key give a token's, read_steps the heads' decays and what the values
// are multiplied with, load_state and save_state one [depth][columns] in panels, leave(token, ...)
// an output.
template <class Source>
struct Spans {
  const Source& source;
  i64 depth, tall, deep, columns, heads;  // tall: rows of a panel of the state
  float *states, *queries, *keys, *products, *scores, *between, *values, *sums, *row;
  float decay[ACROSS], factor[ACROSS], since[ACROSS];

  static i64 bytes(i64 depth, i64 part, i64 heads) {
    i64 deep = ceil_to(ceil_to(depth, MR), 16), columns = ceil_to(part, PANEL);
    i64 floats = heads * deep * columns + SPAN * deep + deep * ACROSS + 3 * SPAN * ACROSS +
                 2 * SPAN * columns + most(columns, deep) * 8;
    return floats * 4 + 2048;
  }

  Spans(const Source& source, i64 depth, i64 part, i64 heads, Arena& arena)
      : source(source), depth(depth), heads(heads) {
    deep = ceil_to(ceil_to(depth, MR), 16);
    tall = ceil_to(depth, MR);
    columns = ceil_to(part, PANEL);
    states = arena.floats(heads * tall * columns);
    queries = arena.floats(SPAN * deep);
    keys = arena.floats(deep * ACROSS);
    arena.take(SPAN * ACROSS, products, scores, between);
    arena.take(SPAN * columns, values, sums);
    row = arena.floats(most(columns, deep) * 8);
  }

  float* state_of(i64 head) const { return states + head * tall * columns; }

  // queries [SPAN][deep], keys transposed [deep][ACROSS], and the products of those in sight
  void open_group(i64 first, i64 n, i64 head) {
    for (i64 i = 0; i < ceil_to(n, MR); i++) {
      if (i < n) source.read_query(first + i, head, queries + i * deep, deep);
      else for (i64 d = 0; d < deep; d++) queries[i * deep + d] = 0;
    }
    for (i64 i = 0; i < ceil_to(n, PANEL); i += 8) {
      for (i64 x = 0; x < 8; x++) {
        if (i + x < n) source.read_key(first + i + x, head, row + x * deep, deep);
        else for (i64 d = 0; d < deep; d++) row[x * deep + d] = 0;
      }
      for (i64 d = 0; d < deep; d += 8) {
        v8 block[8];
        for (i64 x = 0; x < 8; x++) block[x] = *(v8_any*)(row + x * deep + d);
        transpose8(block);
        for (i64 x = 0; x < 8; x++) *(v8_any*)(keys + (d + x) * ACROSS + i) = block[x];
      }
    }
    for (i64 i = 0; i < n; i += MR)
      for (i64 c = 0; c < least(i + MR, n); c += PANEL)
        product<false>(depth, queries + i * deep, deep, keys + c, ACROSS, products + i * ACROSS + c,
                       ACROSS);
  }

  // values [panel][SPAN][PANEL]; between[i][j]: the decay from token j to token i; since[i]: from
  // before the first to token i
  void open_head(i64 first, i64 n, i64 head, i64 begin, i64 width) {
    source.read_steps(first, n, head, decay, factor);
    for (i64 i = 0; i < n; i++) {
      source.read_value(first + i, head, begin, width, row, columns);
      vf by = splat(factor[i]);
      for (i64 c = 0; c < columns; c += LANES)
        store(values + c / PANEL * PANEL * SPAN + i * PANEL + c % PANEL, by * load(row + c));
    }
    for (i64 i = 0; i < ceil_to(n, MR); i++) {
      float* now = between + i * ACROSS;
      for (i64 j = 0; j < ceil_to(n, PANEL); j += LANES)
        store(now + j, i && i < n ? load(now - ACROSS + j) * decay[i] : (vf){});
      if (i < n) now[i] = 1;
      since[i] = i < n ? (i ? since[i - 1] : 1) * decay[i] : 0;
      i64 seen = least(i / MR * MR + MR, n);
      for (i64 j = 0; j < seen; j += LANES)
        store(scores + i * ACROSS + j, load(products + i * ACROSS + j) * load(now + j));
    }
  }

  void advance(i64 n, float* state) {
    float* last = between + (n - 1) * ACROSS;
    for (i64 c = 0; c < columns; c += PANEL) {
      float *held = state + c * tall, *v = values + c * SPAN, *o = sums + c * SPAN;
      for (i64 i = 0; i < n; i += MR) {
        product<false>(depth, queries + i * deep, deep, held, PANEL, o + i * PANEL, PANEL);
        for (i64 x = i; x < i + MR; x++)
          over(o + x * PANEL, PANEL, [=](vf y) { return y * since[x]; });
        product<true>(least(i + MR, n), scores + i * ACROSS, ACROSS, v, PANEL, o + i * PANEL,
                      PANEL);
      }
      for (i64 j = 0; j < n; j++) over(v + j * PANEL, PANEL, [=](vf x) { return x * last[j]; });
      for (i64 d = 0; d < depth; d += MR)
        product<true>(n, keys + d * ACROSS, ACROSS, v, PANEL, held + d * PANEL, PANEL,
                      since[n - 1]);
    }
  }

  void run(const Batch& batch, const Row& item, i64 head, i64 begin, i64 end) {
    i64 width = end - begin;
    for (i64 h = 0; h < heads; h++)
      source.load_state(item.initial, head + h, begin, width, *this, state_of(h));
    for (i64 t = 0; t < item.count; t += SPAN) {
      i64 first = item.first + t, n = least(SPAN, item.count - t);
      open_group(first, n, head);
      for (i64 h = 0; h < heads; h++) {
        open_head(first, n, head + h, begin, width);
        advance(n, state_of(h));
        for (i64 i = 0; i < n; i++) {
          for (i64 c = 0; c < columns; c += LANES)
            store(row + c, load(sums + c / PANEL * PANEL * SPAN + i * PANEL + c % PANEL));
          source.leave(first + i, head + h, begin, width, row, row + columns);
        }
      }
    }
    i64 kept = keep_of(batch, item, item.count - 1);
    for (i64 h = 0; kept >= 0 && h < heads; h++)
      source.save_state(kept, head + h, begin, width, *this, state_of(h));
  }
};
