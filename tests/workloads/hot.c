// A shared library with one function that takes time, from two source files.
static inline long step(long left);

long hot(long left)
{
	volatile long sum = 0;

	while (left--)
		sum += step(left);
	return sum;
}

#line 1 "step.c"
static inline __attribute__((always_inline)) long step(long left)
{
	volatile long twice = left * 2;

	return twice;
}
