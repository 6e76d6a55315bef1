// Three functions that take 6, 3 and 1 parts of the time, for two seconds.
#include <time.h>

static volatile unsigned long sink;

#define BURN(name, parts) \
	static __attribute__((noinline)) void name(void) \
	{ \
		for (long left = (parts) * 10000; left; left--) \
			sink += left; \
	}

BURN(burn_most, 6)
BURN(burn_some, 3)
BURN(burn_least, 1)

int main(void)
{
	time_t end = time(NULL) + 3;

	while (time(NULL) < end) {
		burn_most();
		burn_some();
		burn_least();
	}
	return 0;
}
