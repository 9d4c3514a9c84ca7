/* A stand-in for libze_loader.so.1 with one driver, one GPU and one other processor.
   The structures are those of the Level Zero specification, written anew. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int stype;
  void *next;
  int type;
  uint32_t vendor, device, flags, subdevice, core_clock;
  uint64_t max_alloc;
  uint32_t contexts, priority, threads_per_eu, simd_width, eus, subslices, slices;
  uint64_t timer;
  uint32_t stamp_bits, kernel_stamp_bits;
  uint8_t uuid[16];
  char name[256];
} device_properties;
typedef struct {
  int stype;
  void *next;
  uint32_t group, group_xyz[3], count_xyz[3], local_memory, sizes_count, sizes[8];
} compute_properties;
typedef struct {
  int stype;
  void *next;
  uint32_t spirv, flags, fp16, fp32, fp64, arguments, printf_size;
  uint8_t native[16];
} module_properties;
typedef struct {
  int stype;
  void *next;
  uint32_t flags, clock, width;
  uint64_t total;
  char name[256];
} memory_properties;
typedef struct {
  int stype;
  void *next;
  struct { uint32_t domain, bus, device, function; } address;
  struct { int32_t generation, width; int64_t bandwidth; } speed;
} pci_properties;

enum { WRONG = 0x78000004 };

static int handles(uint32_t *count, void **list, uint32_t there, uintptr_t first) {
  if (list)
    for (uint32_t i = 0; i < *count; i++) list[i] = (void *)(first + i);
  *count = there;
  return 0;
}

/* a probe that makes a context ends here */
int zeContextCreate(void) { abort(); }
int zeContextCreateEx(void) { abort(); }

int zeInit(uint32_t flags) {
  if (getenv("FAKE_ZE_NONE")) return 0x78000001;
  return flags == 1 ? 0 : WRONG;
}
int zeDriverGet(uint32_t *count, void **list) { return handles(count, list, 1, 0x1000); }
int zeDriverGetApiVersion(void *driver, uint32_t *version) {
  *version = 1u << 16 | 6;
  return driver == (void *)0x1000 ? 0 : WRONG;
}
int zeDeviceGet(void *driver, uint32_t *count, void **list) {
  if (driver != (void *)0x1000) return WRONG;
  return handles(count, list, getenv("ZE_AFFINITY_MASK") ? 0 : 2, 0x7f0000002000);
}
int zeDeviceGetSubDevices(void *device, uint32_t *count, void **list) {
  (void)device;
  return handles(count, list, 2, 0x3000);
}
int zeDeviceGetProperties(void *device, device_properties *p) {
  if (p->stype != 3 || p->next) return WRONG;
  p->type = device == (void *)0x7f0000002000 ? 1 : 5;
  p->vendor = 0x8086;
  p->device = 0x56a0;
  p->flags = 0;
  p->core_clock = 2400;
  p->max_alloc = 1ull << 32;
  p->threads_per_eu = 8;
  p->simd_width = 8;
  p->eus = 16;
  p->subslices = 4;
  p->slices = 8;
  p->timer = 52;
  for (int i = 0; i < 16; i++) p->uuid[i] = (uint8_t)(0xa0 + i);
  strcpy(p->name, "Stand-in Arc");
  return 0;
}
int zeDeviceGetComputeProperties(void *device, compute_properties *p) {
  (void)device;
  if (p->stype != 4) return WRONG;
  p->local_memory = 65536;
  p->sizes_count = 3;
  p->sizes[0] = 8;
  p->sizes[1] = 16;
  p->sizes[2] = 32;
  return 0;
}
int zeDeviceGetModuleProperties(void *device, module_properties *p) {
  (void)device;
  if (p->stype != 5) return WRONG;
  p->spirv = 1u << 16 | 2;
  p->flags = 1; /* half precision and not double */
  return 0;
}
int zeDeviceGetMemoryProperties(void *device, uint32_t *count, memory_properties *p) {
  (void)device;
  if (p) {
    if (p[0].stype != 7 || p[1].stype != 7) return WRONG;
    p[0].total = 16225243136u;
    p[1].total = 1000;
  }
  *count = 2;
  return 0;
}
int zeDevicePciGetPropertiesExt(void *device, pci_properties *p) {
  (void)device;
  if (p->stype != 0x10008) return WRONG;
  p->address.bus = 3;
  p->speed.bandwidth = -1;
  return 0;
}
