// State-space operations on a processor: the gated delta rule, the selective scan, state-space
// duality, lightning attention and the short convolution. The mathematics is that of
// attnctl/ops/{gdn,mamba1,mamba2,linear,short_conv}.py; batches are those of StateMetadata in
// attnctl/runtime.py. Everything is computed in float32; exp(x) = 2^(x log2 e).

#include "vectors.h"

// ---- the call: in the order of attnctl/kernels/cpu/state_call.py ----

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

struct Gdn {
  Batch batch;
  Pool pool;
  View q, k, v, g, beta, out;
  const float *a_log, *dt_bias;
  i64 k_heads, v_heads, width, width_v, l2norm, channels;  // channels: a gate for each of them
  double scale;
};

struct Mamba1 {
  Batch batch;
  Pool pool;
  View x, dt, b, c, z, out;
  const float *a, *d, *dt_bias;
  i64 channels, width, softplus;
};

struct Mamba2 {
  Batch batch;
  Pool pool;
  View x, dt, b, c, z, out;
  const float *a, *d, *dt_bias;
  i64 heads, groups, width_v, width, softplus, d_per_channel;
  double least, most;
};

struct Linear {
  Batch batch;
  Pool pool;
  View q, k, v, out;
  const float* slope;
  i64 heads, width, width_v;
  double scale;
};

struct Conv {
  Batch batch;
  Pool pool;
  i64 column_step, channel_step, length, drafts;
  View x, out;
  const u8 *weight, *bias;  // weight: [channels][taps]
  i64 weight_type, bias_type, channels, taps, silu;
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

// ---- the gated delta rule ----

constexpr i64 ABREAST = LANES == 16 ? 8 : 4;  // rows whose sums are kept in registers

// the sums of x[0..7] of rows in memory against two vectors, ABREAST rows at a time
INLINE void two_dots(const float* from, i64 step, i64 width, const float* a, const float* b,
                     v8& with_a, v8& with_b) {
  vf sums[2][GROUP];
  for (i64 r = 0; r < GROUP; r++) {
    const float* row = from + r * step;
    vf x[2] = {}, y[2] = {};
    i64 d = 0;
    for (; d + 2 * LANES <= width; d += 2 * LANES) {
      __builtin_prefetch(row + 8 * step + d, 1);
#pragma GCC unroll 2
      for (i64 i = 0; i < 2; i++) {
        vf s = load(row + d + i * LANES);
        x[i] += s * load(a + d + i * LANES);
        y[i] += s * load(b + d + i * LANES);
      }
    }
    if (d < width) {
      vf s = load(row + d);
      x[0] += s * load(a + d);
      y[0] += s * load(b + d);
    }
    sums[0][r] = x[0] + x[1];
    sums[1][r] = y[0] + y[1];
  }
  with_a = sums_of(sums[0]);
  with_b = sums_of(sums[1]);
}

// to = gate * from + weight k, for GROUP rows; gate: a number, or one for each of the width
template <bool CHANNELS>
INLINE void replace_rows(const float* from, i64 from_step, float* to, i64 to_step, i64 width,
                         const float* gate, const float* weight, const float* k) {
  for (i64 r = 0; r < GROUP; r += 4) {
    vf w[4];
#pragma GCC unroll 4
    for (i64 i = 0; i < 4; i++) w[i] = splat(weight[r + i]);
    for (i64 d = 0; d < width; d += LANES) {
      vf g = CHANNELS ? load(gate + d) : splat(*gate), key = load(k + d);
#pragma GCC unroll 4
      for (i64 i = 0; i < 4; i++)
        store(to + (r + i) * to_step + d, g * load(from + (r + i) * from_step + d) + w[i] * key);
    }
  }
}

struct GdnRows {
  const Gdn& call;
  i64 width, wide, rows;
  float *k, *q, *gates, *gated_k, *gated_q, *v, *o, *carried, *zeros;
  float decay[CHUNK < LANES ? LANES : CHUNK], beta[CHUNK], overlap[CHUNK];

  static i64 together(const Gdn&, const Live&) { return 1; }

  static i64 bytes(const Gdn& call, i64 part, i64) {
    i64 wide = ceil_to(call.width, LANES), rows = ceil_to(part, GROUP);
    return (CHUNK * (5 * wide + 2 * ceil_to(rows, LANES)) + (rows + 1) * wide + 64) * 4 + 1024;
  }

  GdnRows(const Gdn& call, i64 part, i64, Arena& arena) : call(call), width(call.width) {
    wide = ceil_to(width, LANES);
    rows = ceil_to(ceil_to(part, GROUP), LANES);
    arena.take(CHUNK * wide, k, q, gates, gated_k, gated_q);
    arena.take(CHUNK * rows, v, o);
    carried = arena.floats(ceil_to(part, GROUP) * wide);
    zeros = arena.floats(wide);
    for (i64 d = 0; d < wide; d++) zeros[d] = 0;
  }

  void read_unit(const View& view, i64 token, i64 head, float factor, float* to) {
    read_view(view, token, head, 0, width, to, wide);
    if (call.l2norm) factor /= __builtin_sqrtf(dot(to, to, wide) + 1e-6f);
    if (factor != 1.0f) over(to, wide, [=](vf x) { return x * factor; });
  }

  // g as the state's factor, n numbers of head h from g on
  void to_gate(float* g, i64 n, i64 head, i64 bias_step) {
    if (call.a_log) {
      float rate = -exp_of(splat(call.a_log[head]))[0];
      const float* bias = call.dt_bias + head * (call.channels ? width : 1);
      for (i64 i = 0; call.dt_bias && i < n; i++) g[i] += bias[i * bias_step];
      over(g, ceil_to(n, LANES), [=](vf x) { return rate * softplus_of(x); });
    }
    over(g, ceil_to(n, LANES), [](vf x) { return exp_of(x); });
  }

  void run(const Row& row, i64 head, i64 begin, i64 end) {
    recur(*this, call.batch, call.pool, row, head, call.width_v, begin, end);
  }

  void make_ready(const Stretch& s) {
    i64 key_head = s.head / (call.v_heads / call.k_heads), n = s.end - s.begin;
    for (i64 j = 0; j < s.count; j++) {
      i64 t = s.first + j;
      read_unit(call.k, t, key_head, 1.0f, k + j * wide);
      read_unit(call.q, t, key_head, (float)call.scale, q + j * wide);
      overlap[j] = dot(k + j * wide, q + j * wide, wide);
      beta[j] = read_number(call.beta, t, s.head);
      read_view(call.v, t, s.head, s.begin, n, v + j * rows, rows);
      if (call.channels) open_channels(j, t, s.head);
      else decay[j] = read_number(call.g, t, s.head);
    }
    if (!call.channels) to_gate(decay, s.count, s.head, 0);
  }

  void open_channels(i64 j, i64 token, i64 head) {
    float* g = gates + j * wide;
    read_view(call.g, token, head, 0, width, g, wide);
    to_gate(g, width, head, 1);
    for (i64 d = 0; d < wide; d += LANES) {
      store(gated_k + j * wide + d, load(g + d) * load(k + j * wide + d));
      store(gated_q + j * wide + d, load(g + d) * load(q + j * wide + d));
    }
  }

  template <bool CHANNELS>
  void step_as(i64 j, Range part, const float* from, i64 from_step, float* to, i64 to_step) {
    const float* key = k + j * wide;
    const float *with_k = CHANNELS ? gated_k + j * wide : key;
    const float *with_q = CHANNELS ? gated_q + j * wide : q + j * wide;
    const float* gate = CHANNELS ? gates + j * wide : decay + j;
    float after = CHANNELS ? 1.0f : decay[j];
    for (i64 r = part.begin; r < part.end; r += GROUP) {
      v8 held, asked;
      two_dots(from + r * from_step, from_step, wide, with_k, with_q, held, asked);
      v8 update = beta[j] * (*(v8_any*)(v + j * rows + r) - after * held);
      *(v8_any*)(o + j * rows + r) = after * asked + update * overlap[j];
      alignas(32) float weight[GROUP];
      *(v8*)weight = update;
      replace_rows<CHANNELS>(from + r * from_step, from_step, to + r * to_step, to_step, wide, gate,
                             weight, key);
    }
  }

  void step(i64 j, Range part, const float* from, i64 from_step, float* to, i64 to_step) {
    if (call.channels) step_as<true>(j, part, from, from_step, to, to_step);
    else step_as<false>(j, part, from, from_step, to, to_step);
  }

  void finish(const Stretch& s) {
    for (i64 j = 0; j < s.count; j++)
      write_view(call.out, s.first + j, s.head, s.begin, s.end - s.begin, o + j * rows);
  }
};

// ---- the selective scan ----

struct Mamba1Rows {
  const Mamba1& call;
  i64 width, wide, rows, padded, prepared = -1;
  float *x, *dt, *written, *b, *c, *y, *gate, *rates, *carried, *zeros;
  const float* a;

  static i64 together(const Mamba1&, const Live&) { return 1; }

  static i64 bytes(const Mamba1& call, i64 part, i64) {
    i64 wide = ceil_to(call.width, LANES), rows = ceil_to(ceil_to(part, GROUP), LANES);
    return (CHUNK * (5 * rows + 2 * wide) + (2 * rows + 1) * wide + 64) * 4 + 1024;
  }

  Mamba1Rows(const Mamba1& call, i64 part, i64, Arena& arena) : call(call), width(call.width) {
    wide = ceil_to(width, LANES);
    padded = ceil_to(part, GROUP);
    rows = ceil_to(padded, LANES);
    arena.take(CHUNK * rows, x, dt, written, y, gate);
    arena.take(CHUNK * wide, b, c);
    rates = arena.floats(padded * wide);
    carried = arena.floats(padded * wide);
    zeros = arena.floats(wide);
    for (i64 d = 0; d < wide; d++) zeros[d] = 0;
  }

  // the part's rows of A: in place where they need no padding
  void open_rates(i64 begin, i64 n) {
    a = call.a + begin * width;
    if (wide == width && n % GROUP == 0) return;
    if (prepared != begin) {
      for (i64 r = 0; r < padded; r++)
        read_row((const u8*)(call.a + (begin + r) * width), TYPE_F32, r < n ? width : 0,
                 rates + r * wide, wide);
    }
    prepared = begin;
    a = rates;
  }

  void run(const Row& row, i64 head, i64 begin, i64 end) {
    recur(*this, call.batch, call.pool, row, head, call.channels, begin, end);
  }

  void make_ready(const Stretch& s) {
    i64 n = s.end - s.begin;
    open_rates(s.begin, n);
    for (i64 j = 0; j < s.count; j++) {
      i64 t = s.first + j;
      float *step = dt + j * rows, *input = x + j * rows, *input_step = written + j * rows;
      read_view(call.x, t, 0, s.begin, n, input, rows);
      read_view(call.dt, t, 0, s.begin, n, step, rows);
      read_view(call.b, t, 0, 0, width, b + j * wide, wide);
      read_view(call.c, t, 0, 0, width, c + j * wide, wide);
      for (i64 i = 0; call.dt_bias && i < n; i++) step[i] += call.dt_bias[s.begin + i];
      if (call.softplus) over(step, rows, [](vf v) { return softplus_of(v); });
      for (i64 i = 0; i < rows; i += LANES) {
        store(input_step + i, load(step + i) * load(input + i));
        store(step + i, load(step + i) * LOG2E);
      }
    }
  }

  void step(i64 j, Range part, const float* from, i64 from_step, float* to, i64 to_step) {
    const float *in = b + j * wide, *out = c + j * wide;
    for (i64 r = part.begin; r < part.end; r += GROUP) {
      vf sums[GROUP];
#pragma GCC unroll 2
      for (i64 i = 0; i < GROUP; i++) {
        vf rate = splat(dt[j * rows + r + i]), input = splat(written[j * rows + r + i]), sum = {};
        for (i64 d = 0; d < wide; d += LANES) {
          vf decay = power_of(rate * load(a + (r + i) * wide + d));
          vf h = decay * load(from + (r + i) * from_step + d) + input * load(in + d);
          store(to + (r + i) * to_step + d, h);
          sum += h * load(out + d);
        }
        sums[i] = sum;
      }
      *(v8_any*)(y + j * rows + r) = sums_of(sums);
    }
  }

  void finish(const Stretch& s) {
    i64 n = s.end - s.begin;
    for (i64 j = 0; j < s.count; j++) {
      float* row = y + j * rows;
      for (i64 i = 0; call.d && i < n; i++) row[i] += call.d[s.begin + i] * x[j * rows + i];
      if (call.z.data) {
        read_view(call.z, s.first + j, 0, s.begin, n, gate, rows);
        for (i64 i = 0; i < rows; i += LANES)
          store(row + i, load(row + i) * silu_of(load(gate + i)));
      }
      write_view(call.out, s.first + j, 0, s.begin, n, row);
    }
  }
};

// ---- state-space duality ----

// dt of n tokens of a head, as the recurrence uses it
INLINE void time_steps(const Mamba2& call, i64 head, float* dt, i64 n) {
  float bias = call.dt_bias ? call.dt_bias[head] : 0;
  for (i64 i = 0; i < n; i += LANES) {
    vf x = load(dt + i) + bias;
    if (call.softplus) x = softplus_of(x);
    store(dt + i, within(x, (float)call.least, (float)call.most));
  }
}

// y + d x, gated, from row `at` of the head on
INLINE void leave_mamba2(const Mamba2& call, i64 token, i64 head, i64 at, i64 n, const float* x,
                         float* y, float* gate) {
  if (call.d) {
    const float* d = call.d_per_channel ? call.d + head * call.width_v + at : call.d + head;
    for (i64 i = 0; i < n; i++) y[i] += d[call.d_per_channel ? i : 0] * x[i];
  }
  if (call.z.data) {
    i64 padded = ceil_to(n, LANES);
    read_view(call.z, token, head, at, n, gate, padded);
    for (i64 i = 0; i < padded; i += LANES) store(y + i, load(y + i) * silu_of(load(gate + i)));
  }
  write_view(call.out, token, head, at, n, y);
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

// ---- state-space duality, in either form ----

// b and c as keys and queries, dt x as values; the state lies transposed
struct Mamba2Spans {
  const Mamba2& call;

  i64 group_of(i64 head) const { return head / (call.heads / call.groups); }
  void read_query(i64 token, i64 head, float* to, i64 padded) const {
    read_view(call.c, token, group_of(head), 0, call.width, to, padded);
  }
  void read_key(i64 token, i64 head, float* to, i64 padded) const {
    read_view(call.b, token, group_of(head), 0, call.width, to, padded);
  }
  void read_steps(i64 first, i64 n, i64 head, float* decay, float* dt) const {
    for (i64 i = 0; i < n; i++) dt[i] = read_number(call.dt, first + i, head);
    time_steps(call, head, dt, n);
    for (i64 i = 0; i < n; i += LANES) store(decay + i, exp_of(load(dt + i) * call.a[head]));
  }
  void read_value(i64 token, i64 head, i64 begin, i64 n, float* to, i64 padded) const {
    read_view(call.x, token, head, begin, n, to, padded);
  }

  u8* slot(i64 slot, i64 head, i64 row) const {
    return slot_at(call.pool, slot, (head * call.width_v + row) * call.width);
  }

  void load_state(i64 from, i64 head, i64 begin, i64 n, const Spans<Mamba2Spans>& s,
            float* state) const {
    for (i64 c = 0; c < s.columns; c += 8) {
      for (i64 x = 0; x < 8; x++) {
        i64 known = from >= 0 && c + x < n ? call.width : 0;
        const u8* at = known ? slot(from, head, begin + c + x) : nullptr;
        read_row(at, call.pool.type, known, s.row + x * s.deep, s.deep);
      }
      float* panel = state + c / PANEL * PANEL * s.tall + c % PANEL;
      for (i64 d = 0; d < s.tall; d += 8) {
        v8 block[8];
        for (i64 x = 0; x < 8; x++) block[x] = *(v8_any*)(s.row + x * s.deep + d);
        transpose8(block);
        for (i64 x = 0; x < least(8, s.tall - d); x++)
          *(v8_any*)(panel + (d + x) * PANEL) = block[x];
      }
    }
  }

  void save_state(i64 to, i64 head, i64 begin, i64 n, const Spans<Mamba2Spans>& s,
            float* state) const {
    for (i64 c = 0; c < ceil_to(n, 8); c += 8) {
      const float* panel = state + c / PANEL * PANEL * s.tall + c % PANEL;
      for (i64 d = 0; d < s.tall; d += 8) {
        v8 block[8] = {};
        for (i64 x = 0; x < least(8, s.tall - d); x++)
          block[x] = *(v8_any*)(panel + (d + x) * PANEL);
        transpose8(block);
        for (i64 x = 0; x < 8; x++) *(v8_any*)(s.row + x * s.deep + d) = block[x];
      }
      for (i64 x = 0; x < least(8, n - c); x++)
        write_row(slot(to, head, begin + c + x), call.pool.type, call.width, s.row + x * s.deep);
    }
  }

  void leave(i64 token, i64 head, i64 begin, i64 n, float* y, float* other) const {
    read_view(call.x, token, head, begin, n, other, ceil_to(n, LANES));
    leave_mamba2(call, token, head, begin, n, other, y, other);
  }
};

struct Mamba2Rows {
  const Mamba2& call;
  Mamba2Spans source;
  Spans<Mamba2Spans> spans;
  i64 width, wide, rows;
  float *x, *written, *b, *c, *y, *gate, *carried, *zeros;
  float decay[CHUNK < LANES ? LANES : CHUNK], dt[CHUNK < LANES ? LANES : CHUNK];

  // heads of a group, where there are rows to advance many tokens at once
  static i64 together(const Mamba2& call, const Live& live) {
    i64 heads = live.longest < WORTHWHILE ? 1 : call.heads / call.groups;
    i64 wanted = call.batch.threads > 1 ? 4 * call.batch.threads : 1;
    for (i64 n = heads; n > 1; n--) {
      bool enough = live.count * call.heads / n >= wanted;
      if (heads % n == 0 && enough && n * call.width * call.width_v <= TOGETHER) return n;
    }
    return 1;
  }

  static i64 bytes(const Mamba2& call, i64 part, i64 heads) {
    i64 wide = ceil_to(call.width, LANES), rows = ceil_to(ceil_to(part, GROUP), LANES);
    i64 floats = CHUNK * (4 * rows + 2 * wide) + (rows + 1) * wide + 64;
    return floats * 4 + 1024 + Spans<Mamba2Spans>::bytes(call.width, part, heads);
  }

  Mamba2Rows(const Mamba2& call, i64 part, i64 heads, Arena& arena)
      : call(call),
        source{call},
        spans(source, call.width, part, heads, arena),
        width(call.width) {
    wide = ceil_to(width, LANES);
    rows = ceil_to(ceil_to(part, GROUP), LANES);
    arena.take(CHUNK * rows, x, written, y, gate);
    arena.take(CHUNK * wide, b, c);
    carried = arena.floats(ceil_to(part, GROUP) * wide);
    zeros = arena.floats(wide);
    for (i64 d = 0; d < wide; d++) zeros[d] = 0;
  }

  void run(const Row& row, i64 head, i64 begin, i64 end) {
    if (!row.verified && row.count >= WORTHWHILE)
      return spans.run(call.batch, row, head, begin, end);
    for (i64 h = head; h < head + spans.heads; h++)
      recur(*this, call.batch, call.pool, row, h, call.width_v, begin, end);
  }

  void make_ready(const Stretch& s) {
    i64 group = source.group_of(s.head);
    source.read_steps(s.first, s.count, s.head, decay, dt);
    for (i64 j = 0; j < s.count; j++) {
      i64 t = s.first + j;
      read_view(call.b, t, group, 0, width, b + j * wide, wide);
      read_view(call.c, t, group, 0, width, c + j * wide, wide);
      read_view(call.x, t, s.head, s.begin, s.end - s.begin, x + j * rows, rows);
      for (i64 i = 0; i < rows; i += LANES)
        store(written + j * rows + i, load(x + j * rows + i) * dt[j]);
    }
  }

  void step(i64 j, Range part, const float* from, i64 from_step, float* to, i64 to_step) {
    const float *in = b + j * wide, *out = c + j * wide;
    vf keep = splat(decay[j]);
    for (i64 r = part.begin; r < part.end; r += GROUP) {
      vf sums[GROUP];
      for (i64 i = 0; i < GROUP; i++) {
        const float* source = from + (r + i) * from_step;
        float* target = to + (r + i) * to_step;
        vf w = splat(written[j * rows + r + i]), sum = {}, other = {};
        i64 d = 0;
        for (; d + 2 * LANES <= wide; d += 2 * LANES) {
          __builtin_prefetch(source + AHEAD + d, 1);
          vf h = keep * load(source + d) + w * load(in + d);
          vf g = keep * load(source + d + LANES) + w * load(in + d + LANES);
          store(target + d, h);
          store(target + d + LANES, g);
          sum += h * load(out + d);
          other += g * load(out + d + LANES);
        }
        if (d < wide) {
          vf h = keep * load(source + d) + w * load(in + d);
          store(target + d, h);
          sum += h * load(out + d);
        }
        sums[i] = sum + other;
      }
      *(v8_any*)(y + j * rows + r) = sums_of(sums);
    }
  }

  void finish(const Stretch& s) {
    for (i64 j = 0; j < s.count; j++)
      leave_mamba2(call, s.first + j, s.head, s.begin, s.end - s.begin, x + j * rows, y + j * rows,
                   gate);
  }
};

// ---- lightning attention ----

struct LinearSpans {
  const Linear& call;

  void read_query(i64 token, i64 head, float* to, i64 padded) const {
    float scale = (float)call.scale;
    read_view(call.q, token, head, 0, call.width, to, padded);
    over(to, padded, [=](vf x) { return x * scale; });
  }
  void read_key(i64 token, i64 head, float* to, i64 padded) const {
    read_view(call.k, token, head, 0, call.width, to, padded);
  }
  void read_steps(i64, i64 n, i64 head, float* decay, float* factor) const {
    float keep = exp_of(splat(-call.slope[head]))[0];
    for (i64 i = 0; i < n; i++) {
      decay[i] = keep;
      factor[i] = 1;
    }
  }
  void read_value(i64 token, i64 head, i64 begin, i64 n, float* to, i64 padded) const {
    read_view(call.v, token, head, begin, n, to, padded);
  }

  u8* slot(i64 slot, i64 head, i64 row, i64 column) const {
    return slot_at(call.pool, slot, (head * call.width + row) * call.width_v + column);
  }

  void load_state(i64 from, i64 head, i64 begin, i64 n, const Spans<LinearSpans>& s,
            float* state) const {
    for (i64 c = 0; c < s.columns; c += PANEL) {
      for (i64 d = 0; d < s.tall; d++) {
        i64 known = from >= 0 && d < call.width ? least(PANEL, n - c) : 0;
        const u8* at = known ? slot(from, head, d, begin + c) : nullptr;
        read_row(at, call.pool.type, known, state + c * s.tall + d * PANEL, PANEL);
      }
    }
  }

  void save_state(i64 to, i64 head, i64 begin, i64 n, const Spans<LinearSpans>& s,
            float* state) const {
    for (i64 c = 0; c < n; c += PANEL)
      for (i64 d = 0; d < call.width; d++)
        write_row(slot(to, head, d, begin + c), call.pool.type, least(PANEL, n - c),
                  state + c * s.tall + d * PANEL);
  }

  void leave(i64 token, i64 head, i64 begin, i64 n, float* y, float*) const {
    write_view(call.out, token, head, begin, n, y);
  }
};

// N rows of the state over n columns: to = keep from + k v^T, o += q to
template <i64 N>
INLINE void advance_keys(const float* from, i64 from_step, float* to, i64 to_step, i64 n,
                         const float* q, const float* k, const float* v, float keep, float* o) {
  vf key[N], query[N], factor = splat(keep);
#pragma GCC unroll 2
  for (i64 i = 0; i < N; i++) {
    key[i] = splat(k[i]);
    query[i] = splat(q[i]);
  }
  for (i64 c = 0; c < n; c += LANES) {
    vf value = load(v + c), sum = load(o + c);
#pragma GCC unroll 2
    for (i64 i = 0; i < N; i++) {
      __builtin_prefetch(from + (i + 4) * from_step + c, 1);
      vf h = factor * load(from + i * from_step + c) + key[i] * value;
      store(to + i * to_step + c, h);
      sum += query[i] * h;
    }
    store(o + c, sum);
  }
}

struct LinearColumns {
  const Linear& call;
  LinearSpans source;
  Spans<LinearSpans> spans;
  i64 columns, deep;
  float *q, *k, *v, *o, *carried, *zeros;

  static i64 together(const Linear&, const Live&) { return 1; }

  static i64 bytes(const Linear& call, i64 part, i64) {
    i64 columns = ceil_to(part, LANES), deep = ceil_to(call.width, LANES);
    return (2 * deep + (3 + call.width) * columns + 128) * 4 + 1024 +
           Spans<LinearSpans>::bytes(call.width, part, 1);
  }

  LinearColumns(const Linear& call, i64 part, i64, Arena& arena)
      : call(call), source{call}, spans(source, call.width, part, 1, arena) {
    columns = ceil_to(part, LANES);
    deep = ceil_to(call.width, LANES);
    arena.take(deep, q, k);
    arena.take(columns, v, o, zeros);
    carried = arena.floats(call.width * columns);
    for (i64 c = 0; c < columns; c++) zeros[c] = 0;
  }

  void step(const float* from, i64 from_step, float* to, i64 to_step, float keep, i64 n) {
    i64 d = 0;
    for (i64 c = 0; c < n; c += LANES) store(o + c, (vf){});
    for (; d + 2 <= call.width; d += 2)
      advance_keys<2>(from + d * from_step, from_step, to + d * to_step, to_step, n, q + d, k + d,
                      v, keep, o);
    if (d < call.width)
      advance_keys<1>(from + d * from_step, from_step, to + d * to_step, to_step, n, q + d, k + d,
                      v, keep, o);
  }

  void run(const Row& row, i64 head, i64 begin, i64 end) {
    if (!row.verified && row.count >= WORTHWHILE)
      return spans.run(call.batch, row, head, begin, end);
    const Pool& pool = call.pool;
    i64 n = end - begin, padded = ceil_to(n, LANES), first = keep_of(call.batch, row, 0);
    bool direct = row.count == 1 && pool.type == TYPE_F32 && padded == n && first >= 0;
    bool known = row.initial >= 0;
    for (i64 d = 0; !direct && d < call.width; d++) {
      const u8* from = known ? source.slot(row.initial, head, d, begin) : nullptr;
      read_row(from, pool.type, known ? n : 0, carried + d * columns, padded);
    }
    float keep, one;
    source.read_steps(0, 1, head, &keep, &one);
    for (i64 t = 0; t < row.count; t++) {
      source.read_query(row.first + t, head, q, deep);
      source.read_key(row.first + t, head, k, deep);
      source.read_value(row.first + t, head, begin, n, v, padded);
      i64 kept = keep_of(call.batch, row, t);
      if (direct) {
        const float* from = known ? (float*)source.slot(row.initial, head, 0, begin) : zeros;
        step(from, known ? call.width_v : 0, (float*)source.slot(kept, head, 0, begin),
             call.width_v, keep, n);
      } else {
        step(carried, columns, carried, columns, keep, padded);
        for (i64 d = 0; kept >= 0 && d < call.width; d++)
          write_row(source.slot(kept, head, d, begin), pool.type, n, carried + d * columns);
      }
      source.leave(row.first + t, head, begin, n, o, nullptr);
    }
  }
};

// ---- the short convolution ----

constexpr i64 BLOCK = 256;  // channels of an item at most; a multiple of NARROW
constexpr i64 NARROW = 64;
constexpr i64 TAPS = 4;

// One block's weights as [TAPS + 1][BLOCK], the bias in the last row, zeros past the channels.
static void lay_taps(const Conv& call, i64 begin, float* to) {
  i64 taps = call.taps, n = least(BLOCK, call.channels - begin), c = 0;
  alignas(64) float weight[TAPS * BLOCK];
  read_row(call.weight + begin * taps * SIZES[call.weight_type], call.weight_type, n * taps, weight,
           ceil_to(n * taps, LANES));
  for (; taps == 4 && c + 8 <= n; c += 8) {
    const v8_any* w = (const v8_any*)(weight + 4 * c);
    v8 a = w[0], b = w[1], d = w[2], e = w[3];
    v8 ab = SHUFFLE8(a, b, 0, 4, 8, 12, 1, 5, 9, 13), de = SHUFFLE8(d, e, 0, 4, 8, 12, 1, 5, 9, 13);
    *(v8_any*)(to + c) = SHUFFLE8(ab, de, 0, 1, 2, 3, 8, 9, 10, 11);
    *(v8_any*)(to + BLOCK + c) = SHUFFLE8(ab, de, 4, 5, 6, 7, 12, 13, 14, 15);
    ab = SHUFFLE8(a, b, 2, 6, 10, 14, 3, 7, 11, 15);
    de = SHUFFLE8(d, e, 2, 6, 10, 14, 3, 7, 11, 15);
    *(v8_any*)(to + 2 * BLOCK + c) = SHUFFLE8(ab, de, 0, 1, 2, 3, 8, 9, 10, 11);
    *(v8_any*)(to + 3 * BLOCK + c) = SHUFFLE8(ab, de, 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (; c < BLOCK; c++)
    for (i64 i = 0; i < taps; i++) to[i * BLOCK + c] = c < n ? weight[c * taps + i] : 0;
  const u8* bias = call.bias ? call.bias + begin * SIZES[call.bias_type] : nullptr;
  read_row(bias, call.bias_type, bias ? n : 0, to + TAPS * BLOCK, BLOCK);
}

struct ConvItem {
  Row row;
  i64 begin, n, wide;  // channels; wide: in whole registers
};

// One column of the state, as float or from it.
static void read_column(const Conv& call, i64 slot, i64 column, const ConvItem& it, float* to) {
  const Pool& p = call.pool;
  const u8* from = slot_at(p, slot, column * call.column_step + it.begin * call.channel_step);
  if (call.channel_step == 1) return read_row(from, p.type, it.n, to, it.wide);
  View one = {(u8*)from, p.type, 0, call.channel_step};
  for (i64 c = 0; c < it.wide; c++) to[c] = c < it.n ? read_number(one, 0, c) : 0;
}

static void write_column(const Conv& call, i64 slot, i64 column, const ConvItem& it,
                         const float* from) {
  const Pool& p = call.pool;
  u8* to = slot_at(p, slot, column * call.column_step + it.begin * call.channel_step);
  if (call.channel_step == 1) return write_row(to, p.type, it.n, from);
  for (i64 c = 0; c < it.n; c++) put(to, c * call.channel_step, from[c], p.type);
}

// Leaves the newest tokens in the state; every column comes from a later one or from the batch.
static void shift_in(const Conv& call, const ConvItem& it, i64 accepted, float* column) {
  const Row& row = it.row;
  i64 slot = row.slots[0], settled = call.length - call.drafts;
  i64 kept = least(settled + (row.verified ? row.count - 1 : 0), call.length);
  bool dense = call.channel_step == 1, alike = dense && call.x.type == call.pool.type;
  for (i64 j = 0; j < kept; j++) {
    i64 token = row.count - kept + j, old = settled + accepted - 1 + token;
    bool known = token < 0 && row.initial >= 0;
    // as it lies there, where nothing has to be converted
    if (token >= 0 ? alike : known && dense) {
      const u8* from = token >= 0 ? place(call.x, row.first + token, 0, it.begin)
                                  : slot_at(call.pool, slot, old * call.column_step + it.begin);
      __builtin_memcpy(slot_at(call.pool, slot, j * call.column_step + it.begin), from,
                       (usize)(it.n * SIZES[call.pool.type]));
      continue;
    }
    if (token >= 0) read_view(call.x, row.first + token, 0, it.begin, it.n, column, it.wide);
    else if (known) read_column(call, slot, old, it, column);
    else for (i64 c = 0; c < it.wide; c++) column[c] = 0;
    write_column(call, slot, j, it, column);
  }
}

// One token's channels; ring: the last W tokens as float, this one's row being filled.
template <i64 W, class T, bool SILU>
INLINE void convolve(const ConvItem& it, const u8* x, u8* out, i64 type, const float* taps,
                     float* const* ring, i64 x_ahead, i64 out_ahead) {
  for (i64 c = 0; c < it.n; c += LANES) {
    if (c * T::size % 64 == 0) {
      // the next tokens lie in other pages, of which the processor fetches nothing by itself
      __builtin_prefetch(x + x_ahead + c * T::size);
      __builtin_prefetch(out + out_ahead + c * T::size, 1);
    }
    i64 left = it.n - c;
    vf now = left >= LANES ? T::read(x + c * T::size) : read_part<T>(x + c * T::size, left);
    store(ring[W - 1] + c, now);
    vf y = load(taps + TAPS * BLOCK + c);
#pragma GCC unroll 4
    for (i64 i = 0; i < W - 1; i++) y += load(taps + i * BLOCK + c) * load(ring[i] + c);
    y += load(taps + (W - 1) * BLOCK + c) * now;
    if (SILU) y = silu_of(y);
    if (left < LANES) {
      for (i64 i = 0; i < left; i++) put(out, c + i, y[i], type);
    } else if (type == TYPE_F32) {
      store((float*)out + c, y);
    } else {
      *(vh_any*)(out + 2 * c) = type == TYPE_BF16 ? to_bf16s(y) : to_halves(y);
    }
  }
}

template <i64 W, class T>
static void convolve_item(const Conv& call, const ConvItem& it, i64 accepted, const float* taps) {
  alignas(64) float rows[W * BLOCK], column[BLOCK];
  float* ring[W];
  i64 newest = call.length - 1 - call.drafts + accepted - 1, x_step = call.x.t_step * T::size;
  i64 out_step = call.out.t_step * SIZES[call.out.type];
  for (i64 i = 0; i < W - 1; i++) {
    if (it.row.initial >= 0) {
      read_column(call, it.row.slots[0], newest - (W - 2) + i, it, rows + i * BLOCK);
    } else {
      for (i64 c = 0; c < it.wide; c++) rows[i * BLOCK + c] = 0;
    }
  }
  shift_in(call, it, accepted, column);
  for (i64 i = 0; i < W; i++) ring[i] = rows + i * BLOCK;
  const u8* x = place(call.x, it.row.first, 0, it.begin);
  u8* out = (u8*)place(call.out, it.row.first, 0, it.begin);
  for (i64 t = 0; t < it.row.count; t++, x += x_step, out += out_step) {
    i64 x_ahead = 4 * x_step, out_ahead = 4 * out_step;
    if (call.silu) {
      convolve<W, T, true>(it, x, out, call.out.type, taps, ring, x_ahead, out_ahead);
    } else {
      convolve<W, T, false>(it, x, out, call.out.type, taps, ring, x_ahead, out_ahead);
    }
    float* oldest = ring[0];
    for (i64 i = 0; i < W - 1; i++) ring[i] = ring[i + 1];
    ring[W - 1] = oldest;
  }
}

template <i64 W>
INLINE void convolve_as(const Conv& call, const ConvItem& it, i64 accepted, const float* taps) {
  if (call.x.type == TYPE_F32) convolve_item<W, F32>(call, it, accepted, taps);
  else if (call.x.type == TYPE_F16) convolve_item<W, F16>(call, it, accepted, taps);
  else convolve_item<W, BF16>(call, it, accepted, taps);
}

static void convolve_all(const Conv& call) {
  const Batch& batch = call.batch;
  Live live(batch);
  if (!live.count) return;
  i64 wide = ceil_to(call.channels, BLOCK);
  Arena arena((TAPS + 1) * wide * 4);
  float* taps = arena.floats((TAPS + 1) * wide);
  for (i64 c = 0; c < call.channels; c += BLOCK) lay_taps(call, c, taps + (TAPS + 1) * c);
  i64 block = live.count * wide / BLOCK < 4 * batch.threads ? NARROW : BLOCK;
  i64 blocks = (call.channels + block - 1) / block, items = live.count * blocks;
  double numbers = (double)(live.tokens + 2 * live.count) * (double)call.channels;
  int threads = team(batch.threads, items, 6 * numbers);
  i64 chunk = share(items, threads);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(dynamic, chunk)
  for (i64 x = 0; x < items; x++) {
    i64 b = live.rows[x / blocks], begin = x % blocks * block;
    i64 n = least(block, call.channels - begin), accepted = batch.accepted ? batch.accepted[b] : 1;
    ConvItem it = {row_of(batch, b), begin, n, ceil_to(n, LANES)};
    it.row.initial = batch.known[b] ? it.row.slots[0] : -1;  // one slot has every column
    const float* weights = taps + begin / BLOCK * (TAPS + 1) * BLOCK + begin % BLOCK;
    if (call.taps == 2) convolve_as<2>(call, it, accepted, weights);
    else if (call.taps == 3) convolve_as<3>(call, it, accepted, weights);
    else convolve_as<4>(call, it, accepted, weights);
  }
}

// Each gives GOOD, or what is wrong + 8 * the row; nothing is read or written then.
extern "C" {

i64 attnctl_gdn(const Gdn* a) {
  i64 wrong = check(a->batch, a->batch.columns);
  double numbers = (double)a->v_heads * (double)(a->width * a->width_v);
  if (!wrong) run_all<GdnRows>(*a, a->v_heads, a->width_v, 16, 4 * numbers);
  return wrong;
}

i64 attnctl_mamba1(const Mamba1* a) {
  i64 wrong = check(a->batch, a->batch.columns);
  double numbers = (double)a->channels * (double)a->width;
  if (!wrong) run_all<Mamba1Rows>(*a, 1, a->channels, 64, 20 * numbers);
  return wrong;
}

i64 attnctl_mamba2(const Mamba2* a) {
  i64 wrong = check(a->batch, a->batch.columns);
  double numbers = (double)a->heads * (double)(a->width * a->width_v);
  if (!wrong) run_all<Mamba2Rows>(*a, a->heads, a->width_v, 32, 3 * numbers);
  return wrong;
}

i64 attnctl_linear(const Linear* a) {
  i64 wrong = check(a->batch, a->batch.columns);
  double numbers = (double)a->heads * (double)(a->width * a->width_v);
  if (!wrong) run_all<LinearColumns>(*a, a->heads, a->width_v, 32, 3 * numbers);
  return wrong;
}

i64 attnctl_short_conv(const Conv* a) {
  i64 wrong = check(a->batch, 1);
  if (!wrong) convolve_all(*a);
  return wrong;
}
}
