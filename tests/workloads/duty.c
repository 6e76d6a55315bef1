// duty BUSY_MS IDLE_MS SECONDS: burns BUSY_MS of CPU time, sleeps IDLE_MS, until SECONDS have passed.
#include <stdlib.h>
#include <time.h>

static double clock_seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	double busy = atof(argv[1]) / 1e3, idle = atof(argv[2]) / 1e3;
	double end = clock_seconds(CLOCK_MONOTONIC) + atof(argv[3]);

	while (clock_seconds(CLOCK_MONOTONIC) < end) {
		double until = clock_seconds(CLOCK_THREAD_CPUTIME_ID) + busy;

		while (clock_seconds(CLOCK_THREAD_CPUTIME_ID) < until)
			;
		struct timespec nap = { .tv_nsec = idle * 1e9 };

		nanosleep(&nap, NULL);
	}
	return 0;
}
