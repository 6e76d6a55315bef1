// waits WHAT TIMES MS [FILE]: the first thread waits TIMES times for MS ms each (0: 50 us). It prints the
// duration and its CPU time, in ns, and its id. WHAT is sleep (a timer), lock (a futex that another thread
// holds), vfork (for a child that shares the memory), or read. The latter reads 4 KiB blocks of FILE, past
// the page cache, and MS is the size of the file in blocks.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held;
static int times, ms;

static long long now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void pause_ms(void)
{
	struct timespec time = {ms / 1000, ms ? ms % 1000 * 1000000L : 50000};

	nanosleep(&time, NULL);
}

static void *holder(void *unused)
{
	for (int i = 0; i < times; i++) {
		pthread_mutex_lock(&lock);
		pthread_barrier_wait(&held);
		pause_ms();
		pthread_mutex_unlock(&lock);
		pthread_barrier_wait(&held);
	}
	return unused;
}

static void wait_for(const char *what, int file, void *block)
{
	if (!strcmp(what, "sleep")) {
		pause_ms();
	} else if (!strcmp(what, "vfork")) {
		if (vfork() == 0) {
			pause_ms();
			_exit(0);
		}
	} else if (!strcmp(what, "read")) {
		if (pread(file, block, 4096, (off_t)(rand() % ms) * 4096) != 4096)
			_exit(3);
	} else {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
}

int main(int argc, char **argv)
{
	long long waited, cpu;
	pthread_t thread;
	void *block;
	int file = argc > 4 ? open(argv[4], O_RDONLY | O_DIRECT) : -1;
	int locks = argc > 1 && !strcmp(argv[1], "lock");

	if (argc < 4 || (argc > 4 && file < 0) || posix_memalign(&block, 4096, 4096))
		return 2;
	times = atoi(argv[2]);
	ms = atoi(argv[3]);
	pthread_barrier_init(&held, NULL, 2);
	if (locks && pthread_create(&thread, NULL, holder, NULL))
		return 2;
	waited = now(CLOCK_MONOTONIC);
	cpu = now(CLOCK_THREAD_CPUTIME_ID);
	for (int i = 0; i < times; i++) {
		if (locks)
			pthread_barrier_wait(&held);
		wait_for(argv[1], file, block);
		if (locks)
			pthread_barrier_wait(&held);
	}
	cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
	waited = now(CLOCK_MONOTONIC) - waited;
	printf("%lld %lld %d\n", waited, cpu, getpid());
	return 0;
}
