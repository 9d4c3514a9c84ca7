// The call of paged attention: its arguments, and what a row of queries sees.

#pragma once

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
