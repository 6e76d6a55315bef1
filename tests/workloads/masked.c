// masked epoll|signals|timers N REPEATS CPU [REST_US]: makes the kernel run with interrupts masked for
// milliseconds, without any privilege, and prints the duration of each call in ns. With REST_US it pauses
// between calls for a random time up to that, so that they begin anywhere between ticks.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long rest_us;

static void rest(void)
{
	long us = rest_us ? random() % rest_us : 20000;
	struct timespec nap = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	nanosleep(&nap, NULL);
}

// One eventfd that N epoll instances watch: a write walks all of them below one irq-safe lock, and so does a
// read, in about half of the time.
static int by_epoll(int n, int repeats)
{
	int event = eventfd(0, EFD_NONBLOCK);

	for (int i = 0; i < n; i++) {
		struct epoll_event wanted = { .events = EPOLLIN | EPOLLET };
		int poll = epoll_create1(0);

		if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, event, &wanted))
			return 1;
	}
	for (int i = 0; i < repeats; i++) {
		uint64_t one = 1;

		rest();
		long long start = now_ns();

		if (write(event, &one, 8) != 8)
			return 1;
		printf("%lld\n", now_ns() - start);
		start = now_ns();
		if (read(event, &one, 8) != 8)
			return 1;
		printf("%lld\n", now_ns() - start);
	}
	return 0;
}

// N queued signals that are discarded together, below the signal lock.
static int by_signals(int n, int repeats)
{
	struct rlimit limit = { n + 10, n + 10 };
	sigset_t all;

	setrlimit(RLIMIT_SIGPENDING, &limit);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (int i = 0; i < repeats; i++) {
		union sigval value = { 0 };
		struct sigaction ignore = { .sa_handler = SIG_IGN }, normal = { .sa_handler = SIG_DFL };

		for (int k = 0; k < n; k++)
			if (sigqueue(getpid(), SIGRTMIN + 5, value))
				return 1;
		long long start = now_ns();

		sigaction(SIGRTMIN + 5, &ignore, NULL);
		printf("%lld\n", now_ns() - start);
		sigaction(SIGRTMIN + 5, &normal, NULL);
	}
	return 0;
}

// N timers that expire at the same time: one long timer interrupt.
static int by_timers(int n, int repeats)
{
	int *timers = calloc(n, sizeof(int));

	for (int i = 0; i < n; i++) {
		timers[i] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
		if (timers[i] < 0)
			return 1;
	}
	for (int r = 0; r < repeats; r++) {
		long long at = now_ns() + 60000000 + n * 3000LL, last, longest = 0;
		struct itimerspec when = { .it_value = { at / 1000000000, at % 1000000000 } };

		for (int i = 0; i < n; i++)
			timerfd_settime(timers[i], TFD_TIMER_ABSTIME, &when, NULL);
		last = now_ns();
		while (last < at + 40000000) {
			long long now = now_ns();

			if (now - last > longest)
				longest = now - last;
			last = now;
		}
		printf("%lld\n", longest);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	int n = atoi(argv[2]), repeats = atoi(argv[3]);

	rest_us = argc > 5 ? atol(argv[5]) : 0;
	srandom(now_ns());
	struct rlimit files;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(argv[4]), &set);
	sched_setaffinity(0, sizeof(set), &set);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	// Real-time priority, if permitted, keeps other tasks out of the timed calls.
	sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 1 });
	// On a quiet CPU nothing else makes the task switch, and it has no owner before its first switch.
	usleep(1000);
	if (!strcmp(argv[1], "epoll"))
		return by_epoll(n, repeats);
	if (!strcmp(argv[1], "signals"))
		return by_signals(n, repeats);
	if (!strcmp(argv[1], "timers"))
		return by_timers(n, repeats);
	return 2;
}
