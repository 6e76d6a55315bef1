/* lockwait SECONDS THREADS
   Threads that wait for a lock that one of them holds: start_thread -> work -> update_shared_table ->
   pthread_mutex_lock. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long table[64];
static double end;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) void update_shared_table(unsigned int from)
{
	struct timespec some = {0, 1000000};
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 1000; i++)
		table[(from + i) % 64]++;
	nanosleep(&some, NULL);
	pthread_mutex_unlock(&lock);
	table[0]++;
}

__attribute__((noinline)) void *work(void *number)
{
	while (now() < end)
		update_shared_table((unsigned int)(unsigned long)number);
	return NULL;
}

int main(int count, char **words)
{
	pthread_t threads[64];
	if (count < 3)
		return 2;
	int many = atoi(words[2]) > 64 ? 64 : atoi(words[2]);
	end = now() + atof(words[1]);
	for (long i = 0; i < many; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	for (int i = 0; i < many; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
