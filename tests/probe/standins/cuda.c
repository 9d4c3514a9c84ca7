/* A stand-in for libcuda.so.1 with two GPUs. FAKE_CUDA: "error", "crash", "hang" or unset. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void greet(void) { puts("a library that prints"); fflush(stdout); }

static int is(const char *mode) {
  const char *asked = getenv("FAKE_CUDA");
  return asked && !strcmp(asked, mode);
}

/* a probe that makes a context, or memory, ends here */
int cuCtxCreate_v2(void) { abort(); }
int cuCtxCreate_v4(void) { abort(); }
int cuDevicePrimaryCtxRetain(void) { abort(); }
int cuMemAlloc_v2(void) { abort(); }

int cuInit(unsigned flags) {
  if (is("crash")) *(volatile int *)0 = 1;
  if (is("hang")) for (;;) pause();
  return is("error") ? 802 : (int)flags;
}
int cuGetErrorName(int status, const char **name) {
  *name = status == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
int cuDriverGetVersion(int *version) { *version = 13010; return 0; }
/* a mask that is left in place would hide a GPU */
int cuDeviceGetCount(int *count) { *count = getenv("CUDA_VISIBLE_DEVICES") ? 1 : 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, (size_t)size, "Stand-in %d", device);
  return 0;
}
int cuDeviceGetPCIBusId(char *bus, int size, int device) {
  snprintf(bus, (size_t)size, "0000:C%d:00.0", device - 40);
  return 0;
}
int cuDeviceGetUuid(char *uuid, int device) {
  for (int i = 0; i < 16; i++) uuid[i] = (char)(device + i);
  return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)(device - 30) << 33; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
  case 8: *value = 49152; return 0;
  case 10: *value = 32; return 0;
  case 16: *value = 100 + device; return 0;
  case 18: *value = 0; return 0;
  case 36: *value = 3201000; return 0;
  case 37: *value = 6144; return 0;
  case 75: *value = 9; return 0;
  case 76: *value = 0; return 0;
  case 97: return 1; /* CUDA_ERROR_INVALID_VALUE, as an old driver says */
  default: return 1;
  }
}
