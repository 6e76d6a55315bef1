// timers COUNT SECONDS CPU: keeps a CPU busy while COUNT timers expire at one instant 20 times a second. The
// handler of the local timer's interrupt then runs for the sum of their times.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 20000;
	double until = now() + (argc > 2 ? atof(argv[2]) : 1);
	struct rlimit files;
	int *timers = calloc(count, sizeof *timers);
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(argc > 3 ? atoi(argv[3]) : 0, &cpus);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	if (sched_setaffinity(0, sizeof cpus, &cpus) || setrlimit(RLIMIT_NOFILE, &files)) {
		perror("timers");
		return 1;
	}
	for (int i = 0; i < count; i++) {
		timers[i] = timerfd_create(CLOCK_MONOTONIC, 0);
		if (timers[i] < 0) {
			perror("timerfd_create");
			return 1;
		}
	}
	for (;;) {
		double begin = now(), at = begin + 0.04;
		struct itimerspec when = { .it_value = { at, (at - (long)at) * 1e9 } };

		if (begin > until)
			return 0;
		for (int i = 0; i < count; i++)
			timerfd_settime(timers[i], TFD_TIMER_ABSTIME, &when, NULL);
		while (now() < begin + 0.05)
			;
	}
}
