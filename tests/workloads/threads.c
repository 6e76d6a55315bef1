// threads SECONDS SECONDS: two threads burn SECONDS of CPU time each, print their ids and their CPU time, and
// end. A third executes a program, which prints its process id: that of the first thread, which it takes
// over.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static void *burn(void *seconds)
{
	struct timespec now;

	do {
		for (int i = 0; i < 100000; i++)
			sink += i;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while (now.tv_sec + now.tv_nsec / 1e9 < atof(seconds));
	dprintf(1, "%ld %ld\n", syscall(SYS_gettid), now.tv_sec * 1000000000 + now.tv_nsec);
	return NULL;
}

static void *become(void *unused)
{
	(void)unused;
	execl("/bin/sh", "sh", "-c", "echo $$; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done", NULL);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2], last;

	if (argc < 3)
		return 2;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, burn, argv[1 + i]))
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	if (pthread_create(&last, NULL, become, NULL))
		return 1;
	for (;;)
		pause();
}
