// hold MODE NAME SECONDS FILE [CONTENT]
// Process that holds its own memory map, or files, so that a program that reads them waits.
// MODE lock: reads a FUSE file through /proc/self/mem, which holds mmap_lock for reading. The file is mounted
//            in a separate user namespace, and its pages never come. Another thread waits for the lock to
//            write, so every later reader waits.
//      open: maps FILE executable. The second open gets no response.
//      read: open gets a response, read does not.
//      slow: a read returns the content of CONTENT, after a second for each.
// NAME is the new comm. FILE is the mount point: a regular file that exists.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *mode;
static char *content;
static size_t content_size = 1 << 20;
static volatile char *mapped;

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void put(const char *path, const char *text) { int f = open(path, O_WRONLY); if (f < 0 || write(f, text, strlen(text)) < 0) perror(path); close(f); }

static void reply(int fd, uint64_t unique, int error, void *data, size_t size) {
  char buffer[sizeof(struct fuse_out_header) + 131072];
  struct fuse_out_header *out = (void *)buffer;
  out->unique = unique; out->error = error; out->len = sizeof *out + size;
  memcpy(buffer + sizeof *out, data, size);
  if (write(fd, buffer, out->len) < 0 && errno != ENOENT) perror("reply");
}

static void serve(int fd) {
  static char buffer[1 << 20];
  int opened = 0;
  for (;;) {
    ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0) { if (errno == EINTR || errno == ENOENT) continue; _exit(0); }
    struct fuse_in_header *in = (void *)buffer;
    void *arg = buffer + sizeof *in;
    switch (in->opcode) {
    case FUSE_INIT: {
      struct fuse_init_out out = { .major = 7, .minor = 31, .max_readahead = 0, .max_write = 4096, .max_background = 12, .congestion_threshold = 9 };
      reply(fd, in->unique, 0, &out, sizeof out); break; }
    case FUSE_GETATTR: {
      struct fuse_attr_out out = { .attr_valid = 3600 };
      out.attr.ino = in->nodeid; out.attr.size = content_size; out.attr.mode = S_IFREG | 0755; out.attr.nlink = 1; out.attr.blksize = 4096;
      out.attr.blocks = content_size / 512;
      reply(fd, in->unique, 0, &out, sizeof out); break; }
    case FUSE_OPEN: {
      if (!strcmp(mode, "open") && opened++ > 0) break; // never
      struct fuse_open_out out = { .fh = 1 };
      reply(fd, in->unique, 0, &out, sizeof out); break; }
    case FUSE_READ: {
      struct fuse_read_in *r = arg;
      if (!strcmp(mode, "lock") || !strcmp(mode, "read")) break; // never
      if (!strcmp(mode, "slow")) sleep(1);
      size_t n = r->offset >= content_size ? 0 : r->size;
      if (r->offset + n > content_size) n = content_size - r->offset;
      reply(fd, in->unique, 0, content + r->offset, n); break; }
    case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: break;
    case FUSE_FLUSH: case FUSE_RELEASE: case FUSE_ACCESS: reply(fd, in->unique, 0, 0, 0); break;
    default: reply(fd, in->unique, -ENOSYS, 0, 0);
    }
  }
}

static volatile int go;
static void *reader(void *x) { while (go < 1) usleep(1000); int f = open("/proc/self/mem", O_RDONLY); char c; (void)!pread(f, &c, 1, (off_t)mapped); return x; }
static void *burner(void *x) { volatile long n = 0; for (;;) n++; return x; }
static void *writer(void *x) { while (go < 2) usleep(1000); mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); return x; }

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  mode = argv[1];
  double seconds = atof(argv[3]);
  const char *file = argv[4];
  if (argc > 5) { int f = open(argv[5], O_RDONLY); struct stat s; fstat(f, &s); content_size = s.st_size; content = mmap(0, content_size, PROT_READ, MAP_PRIVATE, f, 0); }
  else content = calloc(1, content_size);
  // System files, mapped executable.
  if (getenv("MAPS")) {
    glob_t found; glob("/usr/lib/*/*.so*", 0, 0, &found);
    int left = atoi(getenv("MAPS"));
    for (size_t i = 0; i < found.gl_pathc && left > 0; i++) {
      int f = open(found.gl_pathv[i], O_RDONLY); if (f < 0) continue;
      if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, f, 0) != MAP_FAILED) left--;
      close(f);
    }
  }
  int uid = getuid(), gid = getgid();
  if (uid) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) { perror("unshare"); return 1; }
    char text[64]; put("/proc/self/setgroups", "deny");
    sprintf(text, "0 %d 1", uid); put("/proc/self/uid_map", text);
    sprintf(text, "0 %d 1", gid); put("/proc/self/gid_map", text);
  }
  int fd = open("/dev/fuse", O_RDWR);
  if (fd < 0) { perror("/dev/fuse"); return 1; }
  char options[200];
  sprintf(options, "fd=%d,rootmode=100755,user_id=0,group_id=0%s", fd, uid ? "" : ",allow_other");
  if (mount("hold", file, "fuse", MS_NOSUID | MS_NODEV, options)) { perror("mount"); return 1; }
  int server = fork();
  if (!server) { prctl(PR_SET_PDEATHSIG, SIGKILL); prctl(PR_SET_NAME, "server"); serve(fd); }
  close(fd);
  prctl(PR_SET_NAME, argv[2]);
  int f = open(file, O_RDONLY);
  if (f < 0) { perror("open"); return 1; }
  struct stat st; fstat(f, &st); // the kernel requests its size
  mapped = mmap(0, 16384, PROT_READ | (strcmp(mode, "lock") ? PROT_EXEC : 0), MAP_PRIVATE, f, 0);
  if (mapped == MAP_FAILED) { perror("mmap"); return 1; }
  if (!strcmp(mode, "lock")) {
    pthread_t t; pthread_create(&t, 0, reader, 0); pthread_create(&t, 0, writer, 0); if (!getenv("IDLE")) pthread_create(&t, 0, burner, 0); usleep(50000);
    go = 1; usleep(200000); go = 2; usleep(200000);
  }
  (void)!write(1, "ready\n", 6);
  double end = now() + seconds; volatile long x = 0;
  int burns = !getenv("IDLE");
  while (now() < end) if (burns) for (int i = 0; i < 100000; i++) x += i; else usleep(50000);
  kill(server, SIGKILL);
  if (!uid) umount2(file, MNT_DETACH);
  _exit(0);
}
