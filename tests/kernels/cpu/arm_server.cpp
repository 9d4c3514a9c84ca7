// Serves calls of one kernel source on another architecture: it is linked with that source, and run by
// an emulator. A call comes with the memory that it names, and gives it back. See arm.py.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using Function = long long (*)(const void*);
extern "C" {
#define DECLARED(name) long long name(const void*);
FUNCTIONS(DECLARED)
#undef DECLARED
}

static Function found(const char* name) {
#define KNOWN(one) \
  if (!std::strcmp(name, #one)) return one;
  FUNCTIONS(KNOWN)
#undef KNOWN
  std::exit(3);
}

static void take(void* to, size_t size) {
  if (size && std::fread(to, 1, size, stdin) != size) std::exit(0);
}

static uint64_t number() {
  uint64_t value;
  take(&value, sizeof value);
  return value;
}

struct Region {
  uint64_t address, size;
  std::vector<unsigned char> bytes;
};

int main() {
  for (;;) {
    char name[64] = {};
    take(name, sizeof name);
    std::vector<uint64_t> block(number() / 8);
    std::vector<Region> regions(number());
    take(block.data(), block.size() * 8);
    for (Region& region : regions) {
      region.address = number(), region.size = number();
      region.bytes.resize(region.size);
      take(region.bytes.data(), region.size);
    }
    // a number of a call is never as large as an address
    for (uint64_t& word : block) {
      for (Region& region : regions) {
        if (word < region.address || word >= region.address + region.size) continue;
        word = (uint64_t)region.bytes.data() + (word - region.address);
        break;
      }
    }
    long long answer = found(name)(block.data());
    std::fwrite(&answer, 1, sizeof answer, stdout);
    for (Region& region : regions) std::fwrite(region.bytes.data(), 1, region.size, stdout);
    std::fflush(stdout);
  }
}
