/* deep DEPTH SECONDS Calls itself DEPTH deep and burns CPU there: main -> request -> down x DEPTH -> leaf. */
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;
static double end;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) void leaf(void)
{
	for (unsigned long i = 0; i < 1000000; i++)
		sink += i * 7;
}

__attribute__((noinline)) int down(int depth)
{
	if (depth == 0) {
		while (now() < end)
			leaf();
		return 0;
	}
	int below = down(depth - 1);
	sink++;
	return below + 1;
}

__attribute__((noinline)) int request(int depth)
{
	int below = down(depth);
	sink++;
	return below;
}

int main(int count, char **words)
{
	if (count < 3)
		return 2;
	end = now() + atof(words[2]);
	return request(atoi(words[1])) == 0;
}
