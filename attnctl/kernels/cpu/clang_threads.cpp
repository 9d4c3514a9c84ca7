// What Clang makes of OpenMP's pragmas, carried out by the OpenMP that the process has already.
//
// Clang calls the functions below, which its own runtime brings. That one would stand beside the
// one that torch loaded (GNU's in torch's wheels), with threads of its own that wait in the same
// cores. Loaded after torch, these find torch's by its GNU names, which LLVM's has as well; where
// there is none, a kernel runs on one thread. Here is what the kernels ask for, and no more:
// regions with num_threads and if, loops of static and dynamic schedule that end with a barrier.
typedef long long i64;
typedef void (*Task)(int*, int*, ...);
typedef void* w;
typedef void (*Few)(int*, int*, w, w, w, w, w, w, w, w);
typedef void (*Many)(int*, int*, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w);

extern "C" {
__attribute__((weak)) void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
__attribute__((weak)) void GOMP_barrier(void);
__attribute__((weak)) int omp_get_num_threads(void);
}

#define HIDDEN extern "C" __attribute__((visibility("hidden")))

enum { MOST_WORDS = 16, STATIC = 34 };

struct Region {
  Task task;
  int words;
  w word[MOST_WORDS];
  bool shared;   // by the threads of a team
  int entered;
  i64 taken[2];  // of the loop that runs, and of the next
};

// what a thread is doing
struct Here {
  Region* region;
  int rank;
  unsigned loops;
  i64* taken;
  i64 first, last, step, count, chunk;
};

static thread_local Here here;
static thread_local Region alone;
static thread_local int wanted;

static void call(Task task, int rank, int words, w* of) {
  int zero = 0;
  // words beyond those that a task takes are left where they are
  if (words <= 8)
    ((Few)task)(&rank, &zero, of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7]);
  else
    ((Many)task)(&rank, &zero, of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7], of[8], of[9],
                 of[10], of[11], of[12], of[13], of[14], of[15]);
}

static void enter(void* given) {
  Region* region = (Region*)given;
  Here outer = here;
  here = Here();
  here.region = region;
  here.rank = __atomic_fetch_add(&region->entered, 1, __ATOMIC_RELAXED);
  call(region->task, here.rank, region->words, region->word);
  here = outer;
}

HIDDEN int __kmpc_global_thread_num(void*) { return here.rank; }

HIDDEN void __kmpc_push_num_threads(void*, int, int threads) { wanted = threads; }

HIDDEN void __kmpc_fork_call(void*, int words, Task task, ...) {
  if (words > MOST_WORDS) __builtin_trap();
  Region region = {};
  region.task = task, region.words = words;
  __builtin_va_list list;
  __builtin_va_start(list, task);
  for (int x = 0; x < words; x++) region.word[x] = __builtin_va_arg(list, w);
  __builtin_va_end(list);
  unsigned threads = wanted < 0 ? 0 : wanted;
  wanted = 0;
  region.shared = threads != 1 && GOMP_parallel && GOMP_barrier && omp_get_num_threads;
  if (region.shared) GOMP_parallel(enter, &region, threads, 0);
  else enter(&region);
}

HIDDEN void __kmpc_serialized_parallel(void*, int) {
  wanted = 0;
  alone = Region();
  here = Here();
  here.region = &alone;
}

HIDDEN void __kmpc_end_serialized_parallel(void*, int) { here = Here(); }

HIDDEN void __kmpc_barrier(void*, int) {
  if (here.region && here.region->shared) GOMP_barrier();
}

HIDDEN void __kmpc_for_static_init_8(void*, int, int schedule, int* is_last, i64* lower, i64* upper,
                                     i64* stride, i64 step, i64) {
  if (schedule != STATIC) __builtin_trap();
  i64 count = (*upper - *lower) / step + 1, last = *upper;
  i64 threads = here.region && here.region->shared ? omp_get_num_threads() : 1;
  i64 share = (count + threads - 1) / threads;
  *stride = count * step;
  *lower += share * here.rank * step;
  *upper = *lower + (share - 1) * step;
  *is_last = *lower <= last && *upper >= last;
  if (*upper > last) *upper = last;
}

HIDDEN void __kmpc_for_static_fini(void*, int) {}

HIDDEN void __kmpc_dispatch_init_8(void*, int, int, i64 first, i64 last, i64 step, i64 chunk) {
  // every thread has left the loop before this one: the barrier at its end
  Region* region = here.region;
  here.taken = &region->taken[here.loops % 2];
  here.loops++;
  __atomic_store_n(&region->taken[here.loops % 2], 0, __ATOMIC_RELAXED);
  here.first = first, here.last = last, here.step = step, here.chunk = chunk < 1 ? 1 : chunk;
  here.count = last < first ? 0 : (last - first) / step + 1;
}

HIDDEN int __kmpc_dispatch_next_8(void*, int, int* is_last, i64* lower, i64* upper, i64* stride) {
  i64 from = __atomic_fetch_add(here.taken, here.chunk, __ATOMIC_RELAXED);
  if (from >= here.count) return 0;
  i64 end = from + here.chunk < here.count ? from + here.chunk : here.count;
  *lower = here.first + from * here.step;
  *upper = here.first + (end - 1) * here.step;
  *stride = here.step;
  *is_last = end == here.count;
  return 1;
}
