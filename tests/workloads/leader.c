// leader SECONDS: the first thread ends at once. Another burns CPU for SECONDS of CPU time.
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static double seconds;
static volatile unsigned long sink;

static void *burn(void *unused)
{
	struct timespec now;

	(void)unused;
	do {
		for (int i = 0; i < 100000; i++)
			sink += i;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while (now.tv_sec + now.tv_nsec / 1e9 < seconds);
	exit(0);
}

int main(int argc, char **argv)
{
	pthread_t thread;

	seconds = argc > 1 ? atof(argv[1]) : 1;
	if (pthread_create(&thread, NULL, burn, NULL))
		return 1;
	pthread_exit(NULL);
}
