// spin SECONDS [DEPTH]: burns CPU in hot_leaf(), below DEPTH calls, for SECONDS of CPU time.
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) void hot_leaf(int rounds)
{
	for (int i = 0; i < rounds; i++)
		sink += i;
}

__attribute__((noinline)) void descend(int depth)
{
	if (depth > 0)
		descend(depth - 1);
	else
		hot_leaf(2000);
	__asm__ volatile("" ::: "memory"); // keep the frame: no tail call
}

static double cpu_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	int depth = argc > 2 ? atoi(argv[2]) : 3;

	while (cpu_seconds() < seconds)
		for (int i = 0; i < 100; i++)
			descend(depth);
	return 0;
}
