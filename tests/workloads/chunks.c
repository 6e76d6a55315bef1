// chunks SECONDS: repeats the same work on every CPU, one process each, below a few calls. Prints the mean
// time of a chunk in ns, over the middle half of the chunks. It includes the time of interrupts, but not that
// of other processes.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHUNKS (1 << 20)

static volatile unsigned long sink;

__attribute__((noinline)) void work(void)
{
	for (int i = 0; i < 400000; i++)
		sink += i;
}

__attribute__((noinline)) void descend(int depth)
{
	if (depth > 0)
		descend(depth - 1);
	else
		work();
	__asm__ volatile("" ::: "memory"); // keep the frame: no tail call
}

static long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static int by_size(const void *left, const void *right)
{
	long difference = *(const long *)left - *(const long *)right;

	return (difference > 0) - (difference < 0);
}

static double middle_half(long *chunks, long count)
{
	double sum = 0;

	qsort(chunks, count, sizeof(*chunks), by_size);
	for (long i = count / 4; i < count - count / 4; i++)
		sum += chunks[i];
	return sum / (count - 2 * (count / 4));
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	double *means = mmap(NULL, cpus * sizeof(*means), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (means == MAP_FAILED)
		return 1;
	prctl(PR_SET_PDEATHSIG, SIGKILL); // no other process would end it
	for (long cpu = 0; cpu < cpus; cpu++) {
		if (fork())
			continue;
		cpu_set_t set;
		long *chunks = malloc(CHUNKS * sizeof(*chunks)), count = 0, begun = now_ns();

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		sched_setaffinity(0, sizeof(set), &set);
		for (long at = begun; at - begun < seconds * 1e9; count++) {
			descend(8);
			long end = now_ns();

			chunks[count % CHUNKS] = end - at;
			at = end;
		}
		means[cpu] = middle_half(chunks, count < CHUNKS ? count : CHUNKS);
		_exit(0);
	}
	double sum = 0;

	while (wait(NULL) > 0)
		;
	for (long cpu = 0; cpu < cpus; cpu++)
		sum += means[cpu];
	printf("%.1f\n", sum / cpus);
	return 0;
}
