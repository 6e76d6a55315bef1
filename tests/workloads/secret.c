// secret SECONDS …: burns CPU for SECONDS of CPU time in functions with secret names.
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) void qzsecret_hot(int rounds)
{
	for (int i = 0; i < rounds; i++)
		sink += i;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;

	while ((double)clock() / CLOCKS_PER_SEC < seconds)
		qzsecret_hot(100000);
	return 0;
}
