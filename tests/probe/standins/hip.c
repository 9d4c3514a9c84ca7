/* A stand-in for libamdhip64.so with one GPU. Built with -DOLD it has the layout before ROCm 6. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct properties {
  char name[256];
#ifdef OLD
  char between[140];
#else
  char uuid[16], luid[8];
  char between[880];
#endif
  char target[256];
};

static int masked(void) {
  return getenv("HIP_VISIBLE_DEVICES") || getenv("ROCR_VISIBLE_DEVICES") ||
         getenv("CUDA_VISIBLE_DEVICES") || getenv("GPU_DEVICE_ORDINAL");
}

/* a probe that makes a context, or memory, ends here */
int hipCtxCreate(void) { abort(); }
int hipDevicePrimaryCtxRetain(void) { abort(); }
int hipSetDevice(void) { abort(); }
int hipMemGetInfo(void) { abort(); }
int hipMalloc(void) { abort(); }

int hipGetDeviceCount(int *count) {
  puts("a library that prints");
  if (getenv("FAKE_HIP_NONE") || masked()) return 100;
  *count = 1;
  return 0;
}
const char *hipGetErrorName(int status) { return status == 100 ? "hipErrorNoDevice" : "hipErrorUnknown"; }
int hipRuntimeGetVersion(int *version) { *version = 60443484; return 0; }
int hipDeviceGetName(char *name, int size, int device) {
  snprintf(name, (size_t)size, "Stand-in %d", device);
  return 0;
}
int hipDeviceGetPCIBusId(char *bus, int size, int device) {
  (void)device;
  snprintf(bus, (size_t)size, "0000:46:00.0");
  return 0;
}
int hipDeviceTotalMem(size_t *bytes, int device) { (void)device; *bytes = 206141652992u; return 0; }
int hipDeviceGetUuid(char *uuid, int device) { (void)device; memcpy(uuid, "00000000000000a7", 16); return 0; }
int hipDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  switch (attribute) {
  case 16: *value = 0; return 0;
  case 63: *value = 304; return 0;
  case 74: *value = 65536; return 0;
  case 87: *value = 64; return 0;
  default: return 1;
  }
}

static int fill(struct properties *properties, int device) {
  (void)device;
  /* a name may look like a target */
  strcpy(properties->name, "gfx000");
  strcpy(properties->target, "gfx942:sramecc+:xnack-");
  return 0;
}
#ifdef OLD
int hipGetDeviceProperties(struct properties *p, int device) { return fill(p, device); }
#else
int hipGetDevicePropertiesR0600(struct properties *p, int device) { return fill(p, device); }
/* the entry point for old programs would give another layout */
int hipGetDeviceProperties(struct properties *p, int device) { (void)p; (void)device; return 999; }
#endif
