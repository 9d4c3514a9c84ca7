// What a decode kernel is measured against: a plain read of memory by several threads, and products
// on data in registers by one.

typedef long long i64;
// one register of AVX2: GCC keeps wider sums in memory there, which is slower than memory is
typedef i64 lanes __attribute__((vector_size(32), aligned(8), may_alias));

extern "C" i64 plain_read(const char* data, i64 bytes, int threads) {
  i64 blocks = bytes >> 16, total = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : total) schedule(static)
  for (i64 b = 0; b < blocks; b++) {
    const lanes* p = (const lanes*)(data + (b << 16));
    lanes sum[8] = {};
    for (i64 x = 0; x < 2048; x += 8) {
#pragma GCC unroll 8
      for (i64 y = 0; y < 8; y++) sum[y] += p[x + y];
    }
    for (i64 y = 0; y < 8; y++)
      for (i64 z = 0; z < 4; z++) total += sum[y][z];
  }
  return total;
}

#if defined(__AVX512F__)
typedef float floats __attribute__((vector_size(64)));
#else
typedef float floats __attribute__((vector_size(32)));
#endif

// n times twelve products and sums, none of which waits for another; how many operations those are
extern "C" i64 plain_products(i64 n) {
  floats a = {1}, b = {2}, c = {3}, d = {4}, e = {5}, f = {6}, g = {7}, h = {8}, i = {9}, j = {10},
         k = {11}, l = {12}, x = {}, y = {};
// a register each: an array of them GCC keeps in memory, and equal ones it makes one
#if defined(__aarch64__)
#define HIDE(z) __asm__ volatile("" : "+w"(z))
#else
#define HIDE(z) __asm__ volatile("" : "+x"(z))
#endif
#define STEP(z) z = z * x + y; HIDE(z)
  HIDE(x);
  HIDE(y);
  for (i64 turn = 0; turn < n; turn++) {
    STEP(a); STEP(b); STEP(c); STEP(d); STEP(e); STEP(f);
    STEP(g); STEP(h); STEP(i); STEP(j); STEP(k); STEP(l);
  }
  a += b + c + d + e + f + g + h + i + j + k + l;
  HIDE(a);
  return n * 12 * 2 * (i64)(sizeof a / sizeof a[0]);
}
