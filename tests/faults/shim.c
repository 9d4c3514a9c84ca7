// Preloaded into a process: the files of a folder stand in the place of the system's own, some paths
// are denied, and some cannot be written. What is asked is the real thing: the C library's calls.
//
// FAULTS_ROOT=/folder: where /folder/PATH is there, it is what PATH leads to.
// FAULTS_DENY=/a:/b: everything below is "Permission denied". FAULTS_FROZEN=/a:/b: "Read-only file
// system" for whoever would write below.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int below(const char* list, const char* path) {
  const char* folders = getenv(list);
  while (folders && *folders) {
    size_t length = strcspn(folders, ":");
    if (length && !strncmp(path, folders, length) && (path[length] == '/' || !path[length])) return 1;
    folders += length + (folders[length] == ':');
  }
  return 0;
}

// what a path leads to, or NULL with errno
static const char* led(const char* path, char* place, int writes) {
  const char* root = getenv("FAULTS_ROOT");
  if (path[0] != '/') return path;
  if (below("FAULTS_DENY", path)) return errno = EACCES, NULL;
  if (writes && below("FAULTS_FROZEN", path)) return errno = EROFS, NULL;
  if (!root || !strncmp(path, root, strlen(root))) return path;
  snprintf(place, PATH_MAX, "%s%s", root, path);
  struct stat found;
  return syscall(SYS_newfstatat, AT_FDCWD, place, &found, AT_SYMLINK_NOFOLLOW) ? path : place;
}

#define LED(writes, failure)                     \
  char place[PATH_MAX];                          \
  const char* to = led(path, place, writes);     \
  if (!to) return failure

static int opened(int folder, const char* path, int flags, mode_t mode) {
  LED((flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT), -1);
  return syscall(SYS_openat, folder, to, flags | O_LARGEFILE, mode);
}

#define MODE(last)                                     \
  mode_t mode = 0;                                     \
  if (flags & (O_CREAT | O_TMPFILE)) {                 \
    va_list more;                                      \
    va_start(more, last);                              \
    mode = va_arg(more, int);                          \
    va_end(more);                                      \
  }

int open(const char* path, int flags, ...) {
  MODE(flags);
  return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  MODE(flags);
  return opened(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  MODE(flags);
  return opened(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
  MODE(flags);
  return opened(folder, path, flags, mode);
}
DIR* opendir(const char* path) {
  LED(0, NULL);
  return NEXT(opendir)(to);
}
int access(const char* path, int mode) {
  LED(mode & W_OK, -1);
  return NEXT(access)(to, mode);
}
ssize_t readlink(const char* path, char* text, size_t size) {
  LED(0, -1);
  return NEXT(readlink)(to, text, size);
}
int mkdir(const char* path, mode_t mode) {
  LED(1, -1);
  return NEXT(mkdir)(to, mode);
}
int stat(const char* path, struct stat* found) {
  LED(0, -1);
  return syscall(SYS_newfstatat, AT_FDCWD, to, found, 0);
}
int stat64(const char* path, struct stat64* found) {
  LED(0, -1);
  return syscall(SYS_newfstatat, AT_FDCWD, to, found, 0);
}
int lstat(const char* path, struct stat* found) {
  LED(0, -1);
  return syscall(SYS_newfstatat, AT_FDCWD, to, found, AT_SYMLINK_NOFOLLOW);
}
int lstat64(const char* path, struct stat64* found) {
  LED(0, -1);
  return syscall(SYS_newfstatat, AT_FDCWD, to, found, AT_SYMLINK_NOFOLLOW);
}
