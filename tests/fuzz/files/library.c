// Source of the libraries in this folder (see make.sh): calls through a PLT, inlined calls, a mangled name, stack frames.
extern int puts(const char *);
extern void *malloc(unsigned long);

static inline __attribute__((always_inline)) long inner(long left)
{
	volatile long twice = left * 2;

	return twice;
}

static __attribute__((noinline)) long middle(long left)
{
	long numbers[8];

	for (int i = 0; i < 8; i++)
		numbers[i] = inner(left + i);
	return numbers[left & 7] + (long)malloc((unsigned long)left);
}

long mangled(long left) __asm__("_ZN4acme3runEl");

long mangled(long left)
{
	puts("x");
	return middle(left) + inner(left);
}

long outer(long left)
{
	return left ? mangled(left) + outer(left - 1) : 0;
}
