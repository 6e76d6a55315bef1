// storms faults|migrations|bursts SECONDS: maps and touches memory over and over, or moves itself between
// CPUs 0 and 1. Bursts computes for a millisecond and sleeps for nine, which is harmless.
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

static void fault(void)
{
	size_t bytes = 256 * 4096;
	volatile char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		exit(1);
	madvise((void *)pages, bytes, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < bytes; at += 4096)
		pages[at] = 1;
	munmap((void *)pages, bytes);
}

static void migrate(int to)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(to, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
		exit(1);
}

static void burst(void)
{
	double end = now(CLOCK_PROCESS_CPUTIME_ID) + 0.001;
	struct timespec rest = { 0, 9000000 };

	while (now(CLOCK_PROCESS_CPUTIME_ID) < end)
		;
	nanosleep(&rest, NULL);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	double end = now(CLOCK_MONOTONIC) + atof(argv[2]);
	struct sched_param first = { .sched_priority = 1 };

	// On a busy host it would wait for a CPU after each move.
	if (strcmp(argv[1], "migrations") == 0)
		sched_setscheduler(0, SCHED_FIFO, &first);
	for (int turn = 0; now(CLOCK_MONOTONIC) < end; turn++) {
		if (strcmp(argv[1], "faults") == 0)
			fault();
		else if (strcmp(argv[1], "migrations") == 0)
			migrate(turn % 2);
		else
			burst();
	}
	return 0;
}
