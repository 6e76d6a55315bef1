// jit SECONDS: runs code that is in no file, like a JIT compiler's, and names it in /tmp/perf-PID.map.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "countdown.h"

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[64];

	if (page == MAP_FAILED)
		return 1;
	memcpy(page, code, sizeof(code));
	__builtin___clear_cache(page, (char *)page + sizeof(code));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	FILE *map = fopen(path, "w");

	if (!map)
		return 1;
	fprintf(map, "%lx %lx jitted_loop\n", (unsigned long)page, sizeof(code));
	fclose(map);
	void (*loop)(long) = page;
	clock_t end = clock() + seconds * CLOCKS_PER_SEC;

	while (clock() < end)
		loop(1000000);
	unlink(path);
	return 0;
}
