// clock SECONDS CPU: reads the clock on one CPU and does nothing else. It makes no system call, so none of
// its time is in the kernel.
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <time.h>

// Reads the CPU's counter, a clock that involves neither the kernel nor the vDSO.
static unsigned long counter(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	unsigned long now;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
	return now;
#endif
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	double until = seconds() + atof(argv[1]);
	unsigned long last = 0;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(argv[2]), &set);
	sched_setaffinity(0, sizeof(set), &set);
	do
		for (int i = 0; i < 1000000; i++)
			last ^= counter();
	while (seconds() < until);
	return last == 1;
}
