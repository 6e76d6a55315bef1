// inlined [SECONDS]: checkout inlines tax (line 10, a third of the time) and ship (line 16), on line 21.
#include <stdlib.h>
#include <time.h>

volatile unsigned long sink;

static inline __attribute__((always_inline)) void tax(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sink += i * 7;
}

static inline __attribute__((always_inline)) void ship(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sink += i * 11;
}

__attribute__((noinline)) void checkout(void)
{
	tax(1000000); ship(2000000);
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

	while (now() < end)
		checkout();
	return 0;
}
