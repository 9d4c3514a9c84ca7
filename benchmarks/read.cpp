// A plain read of memory by several threads: the bandwidth that a decode kernel is measured against.

typedef long long i64;
typedef i64 lanes __attribute__((vector_size(64), aligned(8), may_alias));

extern "C" i64 plain_read(const char* data, i64 bytes, int threads) {
  i64 blocks = bytes >> 16, total = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : total) schedule(static)
  for (i64 b = 0; b < blocks; b++) {
    const lanes* p = (const lanes*)(data + (b << 16));
    lanes sum[4] = {};
    for (i64 x = 0; x < 1024; x += 4)
      for (i64 y = 0; y < 4; y++) sum[y] += p[x + y];
    lanes all = sum[0] + sum[1] + sum[2] + sum[3];
    for (i64 y = 0; y < 8; y++) total += all[y];
  }
  return total;
}
