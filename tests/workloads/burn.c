// burn SECONDS: hot_two gets two thirds of the time, hot_one a third.
#include <stdlib.h>
#include <time.h>

volatile unsigned long sink;

__attribute__((noinline)) void hot_one(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sink += i * 7;
}

__attribute__((noinline)) void hot_two(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sink += i * 7;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
	double end = now() + (count > 1 ? atof(arguments[1]) : 3);

	while (now() < end) {
		hot_one(1000000);
		hot_two(2000000);
	}
	return 0;
}
