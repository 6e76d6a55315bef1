// names SECONDS: functions with the names that mangled names use for types.
#include <stdlib.h>
#include <time.h>

#define WORK(name) \
	static __attribute__((noinline)) void name(void) \
	{ \
		for (volatile int left = 1000000; left; left--) \
			; \
	}

WORK(f)
WORK(i)
WORK(d)
WORK(h)
WORK(Ss)
WORK(St)
WORK(PKc)
WORK(w)

int main(int argc, char **argv)
{
	static void (*const all[])(void) = { f, i, d, h, Ss, St, PKc, w };
	clock_t end = clock() + (argc > 1 ? atof(argv[1]) : 1) * CLOCKS_PER_SEC;

	while (clock() < end)
		for (unsigned which = 0; which < sizeof(all) / sizeof(all[0]); which++)
			all[which]();
	return 0;
}
