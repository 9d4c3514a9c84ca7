// What the kernels of a processor share: vectors of GCC and Clang, storage types, a matrix product.
// No headers but this, so that a file compiles in seconds.

#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef __SIZE_TYPE__ usize;

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr i64 LANES = 16;
#else
constexpr i64 LANES = 8;  // two registers where they hold four
#endif

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef i32 vi __attribute__((vector_size(LANES * 4)));
typedef u32 vu __attribute__((vector_size(LANES * 4)));
typedef u16 vh __attribute__((vector_size(LANES * 2)));
typedef u8 vb __attribute__((vector_size(LANES)));
typedef i8 vs __attribute__((vector_size(LANES)));
typedef float v8 __attribute__((vector_size(32)));
typedef float v4 __attribute__((vector_size(16)));
typedef double d4 __attribute__((vector_size(32)));

// the same at any address and through any pointer
typedef float vf_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef u16 vh_any __attribute__((vector_size(LANES * 2), aligned(1), may_alias));
typedef u8 vb_any __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef float v8_any __attribute__((vector_size(32), aligned(4), may_alias));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
typedef double double_any __attribute__((aligned(4), may_alias));

#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)
#define SHUFFLE8(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef i32 v8_index __attribute__((vector_size(32)));
#define SHUFFLE8(a, b, ...) __builtin_shuffle(a, b, (v8_index){__VA_ARGS__})
#endif

constexpr float LOG2E = 1.44269504088896341f;
constexpr float NEVER = -__builtin_inff();

INLINE vf splat(float x) { return x - (vf){}; }
INLINE vf load(const float* p) { return *(const vf_any*)p; }
INLINE void store(float* p, vf x) { *(vf_any*)p = x; }
INLINE vf pick(vi mask, vf a, vf b) { return mask ? a : b; }
constexpr i64 least(i64 a, i64 b) { return a < b ? a : b; }
constexpr i64 most(i64 a, i64 b) { return a > b ? a : b; }
constexpr i64 ceil_to(i64 a, i64 step) { return (a + step - 1) / step * step; }

// 2^x for x <= 126: polynomial of degree 5, relative error below 2e-7 with its rounding; 0 below
// -126.5, where the power's exponent comes out as 0; NaN stays NaN, for comparisons with it are
// false
INLINE vf exp2_of(vf x) {
  vf low = splat(-127.0f);
  vf z = pick(low > x, low, x);
  vf magic = splat(12582912.0f);  // 1.5 * 2^23: its addition rounds to an integer
  vf r = z + magic;
  vf f = z - (r - magic);
  vf p = splat(1.32647099e-03f);
  p = p * f + 9.67150740e-03f;
  p = p * f + 5.55073358e-02f;
  p = p * f + 2.40222424e-01f;
  p = p * f + 6.93147004e-01f;
  p = p * f + 1.0f;
  return p * (vf)(((vi)r - (0x4B400000 - 127)) << 23);
}

// one instruction where the compiler would make five
#if defined(__AVX512F__) && !defined(__clang__)
typedef short wide_source __attribute__((vector_size(32)));
INLINE vu widen(vh h) {
  return (vu)__builtin_ia32_pmovzxwd512_mask((wide_source)h, (vi){}, (u16)-1);
}
#elif defined(__AVX2__) && !defined(__clang__)
typedef short wide_source __attribute__((vector_size(16)));
INLINE vu widen(vh h) { return (vu)__builtin_ia32_pmovzxwd256((wide_source)h); }
#else
INLINE vu widen(vh h) { return __builtin_convertvector(h, vu); }
#endif

// keeps x in a register, so that it is loaded once and not once a use
#if defined(__AVX__)
#define IN_REGISTER(x) __asm__("" : "+x"(x))
#else
#define IN_REGISTER(x)
#endif

INLINE float exp2_one(float x) { return exp2_of(splat(x))[0]; }

// odd polynomial below 5/8, where 1 - 2 / (e^2x + 1) would cancel
INLINE vf tanh_of(vf x) {
  vi sign = (vi)x & (i32)0x80000000;
  vf a = (vf)((vi)x & 0x7fffffff);
  vf z = a * a;
  vf p = splat(2.26612785e-3f);
  p = p * z - 8.31976160e-3f;
  p = p * z + 2.17612777e-2f;
  p = p * z - 5.39582819e-2f;
  p = p * z + 1.33332998e-1f;
  p = p * z - 3.33333343e-1f;
  vf near = a + a * z * p;
  vf e = pick(a > splat(20.0f), splat(20.0f), a) * (2.0f * LOG2E);
  vf far = 1.0f - 2.0f / (exp2_of(e) + 1.0f);
  return (vf)((vi)pick(a < splat(0.625f), near, far) | sign);
}

INLINE bool any_of(vi x) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return __builtin_ia32_movmskps256((vf)x) != 0;
#else
  i32 any = 0;
  for (i64 i = 0; i < LANES; i++) any |= x[i];
  return any != 0;
#endif
}

INLINE float top_of(vf x) {
  float top = x[0];
  for (i64 i = 1; i < LANES; i++) top = x[i] > top ? x[i] : top;
  return top;
}

INLINE float sum_of(vf x) {
  float sum = 0;
  for (i64 i = 0; i < LANES; i++) sum += x[i];
  return sum;
}

INLINE v8 fold8(vf x) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
         __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  return x;
#endif
}

INLINE v8 pair_sums(v8 a, v8 b) {
  return SHUFFLE8(a, b, 0, 8, 1, 9, 4, 12, 5, 13) + SHUFFLE8(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}

INLINE v8 quad_sums(v8 ab, v8 cd) {
  return SHUFFLE8(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) + SHUFFLE8(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
}

// the sums of eight vectors, in order
INLINE v8 sums_of(const vf* x) {
  v8 low = quad_sums(pair_sums(fold8(x[0]), fold8(x[1])), pair_sums(fold8(x[2]), fold8(x[3])));
  v8 high = quad_sums(pair_sums(fold8(x[4]), fold8(x[5])), pair_sums(fold8(x[6]), fold8(x[7])));
  return SHUFFLE8(low, high, 0, 1, 2, 3, 8, 9, 10, 11) +
         SHUFFLE8(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
}

INLINE v4 lower4(v8 x) {
  v4 low;
  __builtin_memcpy(&low, &x, sizeof low);
  return low;
}

INLINE v4 upper4(v8 x) {
  v4 high;
  __builtin_memcpy(&high, (const float*)&x + 4, sizeof high);
  return high;
}

INLINE void transpose8(v8* x) {
  v8 a[8], b[8];
  for (i64 i = 0; i < 8; i += 2) {
    a[i] = SHUFFLE8(x[i], x[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    a[i + 1] = SHUFFLE8(x[i], x[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (i64 i = 0; i < 8; i += 4) {
    for (i64 p = 0; p < 2; p++) {
      b[i + p] = SHUFFLE8(a[i + p], a[i + 2 + p], 0, 1, 8, 9, 4, 5, 12, 13);
      b[i + 2 + p] = SHUFFLE8(a[i + p], a[i + 2 + p], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (i64 i = 0; i < 4; i++) {
    x[i] = SHUFFLE8(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    x[i + 4] = SHUFFLE8(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// ---- storage types ----

INLINE vf half_bits(vu h) {
  vu sign = (h & 0x8000) << 16, mag = h & 0x7fff;
  vu shifted = mag << 13;
  vf normal = (vf)(shifted + (112u << 23));
  vf tiny = (vf)(shifted + (113u << 23)) - 6.103515625e-05f;
  vf special = (vf)(shifted | 0x7f800000u);
  vf x = pick((vi)mag < 0x400, tiny, normal);
  x = pick((vi)mag >= 0x7c00, special, x);
  return (vf)((vu)x | sign);
}

#if defined(__AVX512F__)
typedef short half_source __attribute__((vector_size(32)));
INLINE vf from_half(vh h) {
  return (vf)__builtin_ia32_vcvtph2ps512_mask((half_source)h, (vf){}, (u16)-1, 4);
}
#elif defined(__F16C__) && !defined(__clang__)
typedef short half_source __attribute__((vector_size(16)));
INLINE vf from_half(vh h) { return (vf)__builtin_ia32_vcvtph2ps256((half_source)h); }
#elif defined(__F16C__) || defined(__ARM_FP16_FORMAT_IEEE)
typedef __fp16 half_source __attribute__((vector_size(16)));
INLINE vf from_half(vh h) { return __builtin_convertvector((half_source)h, vf); }
#else
INLINE vf from_half(vh h) { return half_bits(__builtin_convertvector(h, vu)); }
#endif

struct F32 {
  static constexpr i64 size = 4;
  static constexpr bool split = false;
  INLINE vf read(const void* p) { return load((const float*)p); }
};
struct F16 {
  static constexpr i64 size = 2;
  static constexpr bool split = false;
  INLINE vf read(const void* p) { return from_half(*(const vh_any*)p); }
};
struct BF16 {
  static constexpr i64 size = 2;
  static constexpr bool split = true;  // by read_two
  INLINE vf read(const void* p) {
    return (vf)(widen(*(const vh_any*)p) << 16);
  }
};
struct E5M2 {  // the upper byte of a half
  static constexpr i64 size = 1;
  INLINE vf read(const void* p) {
    return from_half(__builtin_convertvector(*(const vb_any*)p, vh) << 8);
  }
};
struct E4M3 {  // no infinity; 0x7f is NaN
  static constexpr i64 size = 1;
  INLINE vf read(const void* p) {
#if defined(__F16C__) || defined(__AVX512F__)
    // a half of the same bits is 2^-8 of it, subnormal or not
    vh h = __builtin_convertvector(*(const vb_any*)p, vh);
    vh nan = (vh)((h & 0x7f) == 0x7f) & 0x7e00;
    return from_half((h & 0x7f) << 7 | (h & 0x80) << 8 | nan) * 256.0f;
#endif
    vu b = __builtin_convertvector(*(const vb_any*)p, vu);
    vu mag = b & 0x7f;
    vf normal = (vf)((mag << 20) + (120u << 23));
    vf tiny = (vf)((mag << 20) + (121u << 23)) - 0.015625f;
    vf x = pick((vi)mag < 8, tiny, normal);
    x = pick((vi)mag == 0x7f, splat(__builtin_nanf("")), x);
    return (vf)((vu)x | (b & 0x80) << 24);
  }
};
struct I8 {
  static constexpr i64 size = 1;
  INLINE vf read(const void* p) {
    return __builtin_convertvector((vs)(*(const vb_any*)p), vf);
  }
};

struct Two {
  vf a, b;
};

// 2 LANES elements; of bfloat16 the even ones and the odd ones, which takes no shuffle
template <class T>
INLINE Two read_two(const void* p) {
  if constexpr (T::split) {
    vu pairs = (vu)load((const float*)p);
    return {(vf)(pairs << 16), (vf)(pairs & 0xffff0000u)};
  } else {
    return {T::read(p), T::read((const u8*)p + LANES * T::size)};
  }
}

enum { TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_E4M3, TYPE_E5M2, TYPE_I8 };

// the first n < LANES elements, zeros behind: what lies behind a row is another row, or nothing
template <class T>
INLINE vf read_part(const void* p, i64 n) {
  alignas(64) u8 bytes[LANES * 4] = {};
  for (i64 i = 0; i < n * T::size; i++) bytes[i] = ((const u8*)p)[i];
  return T::read(bytes);
}

template <class T>
INLINE vf read_most(const void* p, i64 at, i64 width) {
  const u8* from = (const u8*)p + at * T::size;
  return at + LANES <= width ? T::read(from) : read_part<T>(from, width - at);
}

// ---- stores ----

INLINE u16 to_bf16(float x) {
  u32 b = (u32)__builtin_bit_cast(i32, x);
  if ((b & 0x7fffffff) > 0x7f800000) return (u16)(b >> 16 | 0x40);
  return (u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

// to the nearest number of `mantissa` stored bits, ties to even, for exponents down to `lowest`
INLINE float round_to(float x, i32 mantissa, i32 lowest) {
  u32 b = __builtin_bit_cast(u32, x) & 0x7f800000u;
  i32 exponent = (i32)(b >> 23) - 127;
  exponent = exponent < lowest ? lowest : exponent;
  float magic = __builtin_bit_cast(float, (u32)(exponent + 127 + 23 - mantissa) << 23) * 1.5f;
  return x + magic - magic;
}

INLINE u16 to_half(float x) {
  u32 b = __builtin_bit_cast(u32, x), sign = b >> 16 & 0x8000, mag = b & 0x7fffffff;
  if (mag > 0x7f800000) return (u16)(sign | 0x7e00);
  if (mag >= 0x477ff000) return (u16)(sign | 0x7c00);
  float r = __builtin_fabsf(round_to(x, 10, -14));
  u32 m = __builtin_bit_cast(u32, r);
  if (r < 6.103515625e-05f) return (u16)(sign | (u32)(r * 16777216.0f));
  return (u16)(sign | ((m >> 13) - (112u << 10)));
}

INLINE void put(u8* to, i64 at, float x, i64 type) {
  if (type == TYPE_F32) ((float*)to)[at] = x;
  else if (type == TYPE_F16) ((u16*)to)[at] = to_half(x);
  else ((u16*)to)[at] = to_bf16(x);
}

INLINE vh to_bf16s(vf x) {
  vu b = (vu)x;
  vu near = (b + 0x7fff + (b >> 16 & 1)) >> 16;
  return __builtin_convertvector((vu)pick(x == x, (vf)near, (vf)(b >> 16 | 0x40)), vh);
}

#if defined(__AVX512F__)
INLINE vh to_halves(vf x) {
  return (vh)__builtin_ia32_vcvtps2ph512_mask(x, 0, (half_source){}, (u16)-1);
}
#elif defined(__F16C__) && !defined(__clang__)
INLINE vh to_halves(vf x) { return (vh)__builtin_ia32_vcvtps2ph256(x, 0); }
#elif defined(__F16C__) || defined(__ARM_FP16_FORMAT_IEEE)
INLINE vh to_halves(vf x) { return (vh)__builtin_convertvector(x, half_source); }
#else
INLINE vh to_halves(vf x) {
  vh h;
  for (i64 i = 0; i < LANES; i++) h[i] = to_half(x[i]);
  return h;
}
#endif

constexpr i64 SIZES[] = {4, 2, 2, 1, 1, 1};  // bytes of each type

// n floats, each times `factor`, to a row of the output
INLINE void put_row(u8* to, const float* from, i64 n, float factor, i64 type) {
  switch (type) {
    case TYPE_F32:
      for (i64 d = 0; d < n; d++) ((float*)to)[d] = from[d] * factor;
      break;
    case TYPE_F16:
      for (i64 d = 0; d < n; d++) ((u16*)to)[d] = to_half(from[d] * factor);
      break;
    default:
      for (i64 d = 0; d < n; d++) ((u16*)to)[d] = to_bf16(from[d] * factor);
  }
}

INLINE void put_zeros(u8* to, i64 n, i64 type) {
  __builtin_memset(to, 0, (usize)(n * SIZES[type]));
}

// of a positive finite number: its fraction f as 2 artanh((f - 1) / (f + 1))
INLINE float natural_log(float x) {
  if (!(x > 0 && x < -NEVER)) return x == 0 ? NEVER : x;
  u32 b = __builtin_bit_cast(u32, x);
  i32 exponent = (i32)(b >> 23) - 127;
  double f = __builtin_bit_cast(float, (b & 0x7fffff) | 0x3f800000u);
  if (f > 1.41421356237) f *= 0.5, exponent++;
  double s = (f - 1) / (f + 1), z = s * s;
  double sum = 1 + z * (1 / 3.0 + z * (1 / 5.0 + z * (1 / 7.0 + z * (1 / 9.0 + z / 11.0))));
  return (float)(2 * s * sum + exponent * 0.693147180559945309);
}

// the logarithm of a sum of `total` times 2^top; nothing was seen where the total is 0
INLINE float natural_lse(float top, float total) {
  return total == 0 ? NEVER : top * 0.693147180559945309f + natural_log(total);
}

// logits to weights; top and total go on over tiles; returns what the sums so far are worth
INLINE float weigh(float* row, i64 from, i64 to, float& top, float& total) {
  vf highest = splat(NEVER);
  for (i64 j = from; j < to; j += LANES) {
    vf x = load(row + j);
    highest = pick(x > highest, x, highest);
  }
  float now = top_of(highest);
  now = now > top ? now : top;
  float base = now == NEVER ? 0 : now;
  vf sum = {};
  for (i64 j = from; j < to; j += LANES) {
    vf w = exp2_of(load(row + j) - base);
    store(row + j, w);
    sum += w;
  }
  float keep = top == now ? 1.0f : exp2_one(top - base);
  total = total * keep + sum_of(sum);
  top = now;
  return keep;
}

// ---- matrix products ----

#if defined(__AVX512F__)
constexpr i64 MR = 12;
#else
constexpr i64 MR = 6;
#endif
constexpr i64 NR = 2;
constexpr i64 PANEL = NR * LANES;  // columns

// c[MR][PANEL] = (scale c +) a[MR][depth] b[depth][PANEL]; b's rows are whole registers apart
template <bool ADD>
static void product(i64 depth, const float* a, i64 stride_a, const float* b, i64 stride_b, float* c,
                    i64 stride_c, float scale = 1) {
  vf sum[MR][NR];
#pragma GCC unroll 16
  for (i64 r = 0; r < MR; r++) {
#pragma GCC unroll 2
    for (i64 x = 0; x < NR; x++)
      sum[r][x] = ADD ? scale * load(c + r * stride_c + x * LANES) : (vf){};
  }
  for (i64 k = 0; k < depth; k++, b += stride_b) {
    vf y[NR];
#pragma GCC unroll 2
    for (i64 x = 0; x < NR; x++) y[x] = *(const vf*)(b + x * LANES);
#pragma GCC unroll 16
    for (i64 r = 0; r < MR; r++) {
      vf w = splat(a[r * stride_a + k]);
#pragma GCC unroll 2
      for (i64 x = 0; x < NR; x++) sum[r][x] += w * y[x];
    }
  }
#pragma GCC unroll 16
  for (i64 r = 0; r < MR; r++) {
#pragma GCC unroll 2
    for (i64 x = 0; x < NR; x++) store(c + r * stride_c + x * LANES, sum[r][x]);
  }
}

template <class T>
struct List {
  T* data = nullptr;
  i64 count = 0, room = 0;
  void add(const T& item) {
    if (count == room) {
      room = room ? 2 * room : 64;
      data = (T*)__builtin_realloc(data, (usize)room * sizeof(T));
    }
    data[count++] = item;
  }
  ~List() { __builtin_free(data); }
};

// memory of one thread, cut into aligned pieces
struct Arena {
  u8 *base, *next;
  explicit Arena(i64 bytes) {
    base = (u8*)__builtin_malloc((usize)bytes + 64);
    next = base + (64 - (usize)base % 64) % 64;
  }
  float* floats(i64 count) {
    u8* at = next;
    next += ceil_to(count * 4, 64);
    return (float*)at;
  }
  template <class... Pointers>
  void take(i64 count, Pointers&... pointers) {
    ((pointers = floats(count)), ...);
  }
  ~Arena() { __builtin_free(base); }
};
