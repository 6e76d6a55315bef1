// jitmap SECONDS NAME [SECONDS NAME]...: runs code that is in no file and replaces it by other code at its
// address, as a JIT compiler does. Prints the CPU time of each, and appends each to /tmp/perf-PID.map
// (tools/perf/Documentation/jit-interface.txt), which it removes at the end.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "countdown.h"

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void (*loop)(long) = page;
	char path[64];

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	int map = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (page == MAP_FAILED || map < 0)
		return 1;
	for (int i = 1; i + 1 < argc; i += 2) {
		double begun = seconds(), used;

		memcpy(page, code, sizeof(code));
		__builtin___clear_cache(page, (char *)page + sizeof(code));
		dprintf(map, "%lx %zx %s\n", (unsigned long)(uintptr_t)page, sizeof(code), argv[i + 1]);
		do {
			loop(1000000);
			used = seconds() - begun;
		} while (used < atof(argv[i]));
		printf("%s %.6f\n", argv[i + 1], used);
		fflush(stdout);
	}
	// Its reader has opened it by now.
	unlink(path);
	return 0;
}
