// Products of bfloat16 by AMX's tiles. With -DTILES_EMULATED the same in plain C++, for tests on
// processors that have none.

#pragma once

#include "vectors.h"

#if defined(TILES_EMULATED) || \
    (defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__AVX512DQ__))
#define TILES 1
#else
#define TILES 0
#endif

#if TILES

constexpr i64 SIDE = 16;            // rows of a tile, and its columns of floats
constexpr i64 DEPTH = 2 * SIDE;     // bfloat16 in a tile's row
constexpr i64 SQUARE = SIDE * DEPTH;  // and in a tile

// which of 32 columns comes at place x of two panels: pairs are made within 16 bytes, so that a
// panel has the lower or the upper halves of four of them
constexpr i64 column_of(i64 x) { return x % SIDE / 4 * 8 + x % 4 + x / SIDE * 4; }

#if defined(TILES_EMULATED)

static bool tiles_granted() { return true; }
INLINE void open_tiles() {}
INLINE void close_tiles() {}

INLINE float float_of(u16 x) { return __builtin_bit_cast(float, (u32)x << 16); }

// c[16 R][32] (+)= a[16 R][depth] b[depth][32]. The strides are in elements. b is in two panels of 16
// columns, `panel` apart, each [depth / 2][16][2].
template <i64 R, bool ADD>
INLINE void tile_product(i64 depth, const u16* a, i64 stride_a, const u16* b, i64 panel, float* c,
                         i64 stride_c) {
  for (i64 r = 0; r < R * SIDE; r++) {
    for (i64 x = 0; x < 2 * SIDE; x++) {
      const u16* column = b + x / SIDE * panel + x % SIDE * 2;
      float sum = ADD ? c[r * stride_c + x] : 0;
      for (i64 k = 0; k < depth; k++)
        sum += float_of(a[r * stride_a + k]) * float_of(column[k / 2 * DEPTH + k % 2]);
      c[r * stride_c + x] = sum;
    }
  }
}

// c[32][16] = a[2][16][depth] b[depth][16]. The rows of both halves of a are `stride` bytes apart; b
// is [depth / 2][16][2].
INLINE void tile_columns(i64 depth, const u8* const* a, const i64* stride, const u16* b, float* c) {
  for (i64 r = 0; r < 2 * SIDE; r++) {
    const u16* row = (const u16*)(a[r / SIDE] + r % SIDE * stride[r / SIDE]);
    for (i64 x = 0; x < SIDE; x++) {
      float sum = 0;
      for (i64 k = 0; k < depth; k++)
        sum += float_of(row[k]) * float_of(b[k / 2 * DEPTH + x * 2 + k % 2]);
      c[r * SIDE + x] = sum;
    }
  }
}

INLINE void pairs_of(const u16* a, const u16* b, u16* first, u16* second) {
  for (i64 x = 0; x < DEPTH; x++) {
    u16* to = x < SIDE ? first + 2 * x : second + 2 * (x - SIDE);
    to[0] = a[column_of(x)];
    to[1] = b[column_of(x)];
  }
}

INLINE void fetch_line(const u8* p) { __builtin_prefetch(p, 0, 2); }

INLINE vf power_of(vf x) { return exp2_of(x); }

INLINE vf greater_of(vf a, vf b) { return pick(a > b, a, b); }

INLINE void put_bf16s(u16* to, vf a, vf b) {
  *(vh_any*)to = to_bf16s(a);
  *(vh_any*)(to + LANES) = to_bf16s(b);
}

#else

// Linux gives a process the tiles' state when it asks: Documentation/arch/x86/xstate.rst
static bool tiles_granted() {
  static i32 answer = 0;  // 1: yes, 2: no; threads that meet here get the same
  i32 known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
  if (known) return known == 1;
  i64 failed = 158;  // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
  __asm__ volatile("syscall" : "+a"(failed) : "D"(0x1023), "S"(18) : "rcx", "r11", "memory");
  __atomic_store_n(&answer, failed ? 2 : 1, __ATOMIC_RELAXED);
  return !failed;
}

// eight tiles of 16 rows of 64 bytes, in this thread
INLINE void open_tiles() {
  struct {
    u8 palette = 1, first_row = 0, none[14] = {};
    u16 row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    u8 rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } layout;
  __asm__ volatile("ldtilecfg %0" ::"m"(layout));
}

// a thread with open tiles is dearer to switch
INLINE void close_tiles() { __asm__ volatile("tilerelease"); }

#define TILE_LOAD(tile, from, stride) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(stride) : "memory")
#define TILE_STORE(tile, to, stride) \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(stride) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define TILE_MULTIPLY(sum, a, b) \
  __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum ::)

// c[16 R][32] (+)= a[16 R][depth] b[depth][32]. The strides are in elements. b is in two panels of 16
// columns, `panel` apart, each [depth / 2][16][2].
template <i64 R, bool ADD>
INLINE void tile_product(i64 depth, const u16* a, i64 stride_a, const u16* b, i64 panel, float* c,
                         i64 stride_c) {
  const i64 a_bytes = stride_a * 2, b_bytes = 64, c_bytes = stride_c * 4;
  float* below = c + SIDE * stride_c;
  if constexpr (ADD) {
    TILE_LOAD(0, c, c_bytes);
    TILE_LOAD(1, c + SIDE, c_bytes);
  } else {
    TILE_ZERO(0);
    TILE_ZERO(1);
  }
  if constexpr (R == 2 && ADD) {
    TILE_LOAD(2, below, c_bytes);
    TILE_LOAD(3, below + SIDE, c_bytes);
  } else if constexpr (R == 2) {
    TILE_ZERO(2);
    TILE_ZERO(3);
  }
  for (i64 k = 0; k < depth; k += DEPTH, a += DEPTH, b += SQUARE) {
    TILE_LOAD(4, a, a_bytes);
    TILE_LOAD(6, b, b_bytes);
    TILE_LOAD(7, b + panel, b_bytes);
    TILE_MULTIPLY(0, 4, 6);
    TILE_MULTIPLY(1, 4, 7);
    if constexpr (R == 2) {
      TILE_LOAD(5, a + SIDE * stride_a, a_bytes);
      TILE_MULTIPLY(2, 5, 6);
      TILE_MULTIPLY(3, 5, 7);
    }
  }
  TILE_STORE(0, c, c_bytes);
  TILE_STORE(1, c + SIDE, c_bytes);
  if constexpr (R == 2) {
    TILE_STORE(2, below, c_bytes);
    TILE_STORE(3, below + SIDE, c_bytes);
  }
}

// c[32][16] = a[2][16][depth] b[depth][16]. The rows of both halves of a are `stride` bytes apart; b
// is [depth / 2][16][2].
INLINE void tile_columns(i64 depth, const u8* const* a, const i64* stride, const u16* b, float* c) {
  const u8 *above = a[0], *below = a[1];
  const i64 bytes = 64;
  TILE_ZERO(0);
  TILE_ZERO(1);
  for (i64 k = 0; k < depth; k += DEPTH, above += bytes, below += bytes, b += SQUARE) {
    TILE_LOAD(6, b, bytes);
    TILE_LOAD(4, above, stride[0]);
    TILE_MULTIPLY(0, 4, 6);
    TILE_LOAD(5, below, stride[1]);
    TILE_MULTIPLY(1, 5, 6);
  }
  TILE_STORE(0, c, bytes);
  TILE_STORE(1, c + SIDE * SIDE, bytes);
}

#undef TILE_LOAD
#undef TILE_STORE
#undef TILE_ZERO
#undef TILE_MULTIPLY

// 32 columns of two rows, side by side, to two panels
INLINE void pairs_of(const u16* a, const u16* b, u16* first, u16* second) {
  vf x = load((const float*)a), y = load((const float*)b), low, high;
  __asm__("vpunpcklwd %2, %1, %0" : "=v"(low) : "v"(x), "v"(y));
  __asm__("vpunpckhwd %2, %1, %0" : "=v"(high) : "v"(x), "v"(y));
  store((float*)first, low);
  store((float*)second, high);
}

// into the second-level cache; a function of nothing but __builtin_prefetch is left out by compilers
INLINE void fetch_line(const u8* p) { __asm__ volatile("prefetcht1 %0" ::"m"(*p)); }

// 2^x within 3e-6 of it, which is little beside the rounding to bfloat16: 2^floor(x) by an
// instruction, a polynomial of degree 4 for the rest; 0 for -infinity, NaN for NaN
INLINE vf power_of(vf x) {
  vf f, power;
  __asm__("vreduceps $9, %1, %0" : "=v"(f) : "v"(x));
  vf p = splat(1.35341676e-02f);
  p = p * f + 5.20114612e-02f;
  p = p * f + 2.41442757e-01f;
  p = p * f + 6.93003835e-01f;
  p = p * f + 1.00000259e+00f;
  __asm__("vscalefps %2, %1, %0" : "=v"(power) : "v"(p), "v"(x));
  return power;
}

INLINE vf greater_of(vf a, vf b) {
  vf high;
  __asm__("vmaxps %2, %1, %0" : "=v"(high) : "v"(a), "v"(b));
  return high;
}

INLINE void put_bf16s(u16* to, vf a, vf b) {
  vf pairs;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(pairs) : "v"(a), "v"(b));
  store((float*)to, pairs);
}

#endif

#endif
