// A plain read of memory by several threads: the bandwidth that a decode kernel is measured against.

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
