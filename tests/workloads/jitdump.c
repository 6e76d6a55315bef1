// jitdump: runs code that is in no file and replaces it by other code at its address, as a JIT compiler does.
// Prints the CPU time of each, and writes both to jit-PID.dump
// (tools/perf/Documentation/jitdump-specification.txt) in the working directory.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "countdown.h"

// ELF e_machine value.
#if defined(__x86_64__)
#define MACHINE 62
#elif defined(__aarch64__)
#define MACHINE 183
#endif

struct header {
	uint32_t magic, version, size, machine, padding, pid;
	uint64_t at, flags;
};

struct load {
	uint32_t kind, size;
	uint64_t at;
	uint32_t pid, tid;
	uint64_t vma, address, bytes, index;
};

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

// Runs code under a name for `length` seconds of CPU time.
static void run(int dump, void *page, const char *name, uint64_t index, double length)
{
	struct load load = {
		0, sizeof(load) + strlen(name) + 1 + sizeof(code), nanoseconds(CLOCK_MONOTONIC), getpid(), getpid(),
		(uintptr_t)page, (uintptr_t)page, sizeof(code), index,
	};
	uint64_t begun = nanoseconds(CLOCK_PROCESS_CPUTIME_ID), used;
	void (*loop)(long) = page;

	memcpy(page, code, sizeof(code));
	__builtin___clear_cache(page, (char *)page + sizeof(code));
	if (write(dump, &load, sizeof(load)) < 0 || write(dump, name, strlen(name) + 1) < 0 ||
	    write(dump, code, sizeof(code)) < 0)
		_exit(1);
	do {
		loop(1000000);
		used = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - begun;
	} while (used < length * 1e9);
	printf("%s %.6f\n", name, used / 1e9);
}

int main(void)
{
	struct header header = {
		0x4a695444, 1, sizeof(header), MACHINE, 0, getpid(), nanoseconds(CLOCK_MONOTONIC), 0,
	};
	char path[64];
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	snprintf(path, sizeof(path), "jit-%d.dump", getpid());
	int dump = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (page == MAP_FAILED || dump < 0 || write(dump, &header, sizeof(header)) < 0)
		return 1;
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0) == MAP_FAILED)
		return 1;
	run(dump, page, "jit_first", 0, 0.3);
	run(dump, page, "jit_second", 1, 0.5);
	run(dump, page, "jit_third", 2, 0.2);
	unlink(path);
	return 0;
}
