// stages SECONDS [PROGRAM SECONDS]...: burns CPU time in a function with its own name, prints the time, and
// executes the next program.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TEXT(name) #name
#define NAME(name) TEXT(name)

static volatile unsigned long sink;

__attribute__((noinline)) void STAGE(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++)
		sink += i * 7;
}

static double seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

void burn(double length)
{
	double begun = seconds(CLOCK_PROCESS_CPUTIME_ID);
	double used;

	do {
		STAGE(100000);
		used = seconds(CLOCK_PROCESS_CPUTIME_ID) - begun;
	} while (used < length);
	printf("%s %.6f\n", NAME(STAGE), used);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	burn(atof(argv[1]));
	if (argc > 2)
		execv(argv[2], argv + 2);
	return argc > 2;
}
