// convoy SECONDS THREADS HELD FREE: threads that take one mutex in turns, each for HELD steps of work, with
// FREE steps between, for SECONDS by the clock.
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double end;
static int held, spare;
static long shared[64];

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

__attribute__((noinline)) void update_shared(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < held; i++)
		shared[i & 63] += i;
	pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) void work_alone(void)
{
	for (volatile int i = 0; i < spare; i++)
		;
}

static void *work(void *unused)
{
	while (now() < end) {
		update_shared();
		work_alone();
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int count = argc == 5 ? atoi(argv[2]) : 0;

	if (count < 1 || count > 64)
		return 2;
	end = now() + atof(argv[1]);
	held = atoi(argv[3]);
	spare = atoi(argv[4]);
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, work, NULL))
			return 1;
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
