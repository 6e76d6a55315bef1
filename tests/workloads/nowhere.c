/* nowhere SECONDS
   Burns CPU with a frame pointer that leads to return addresses in no mapping. Code without frame pointers
   uses that register for other data. */
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;
/* Target of the frame pointer: another frame, and the return address of that one, and so on. */
static unsigned long chain[6];

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) void astray(void)
{
	unsigned long count = 20000000;
#if defined(__x86_64__)
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpush %%rbp\n\tmov %1, %%rbp\n1:\tsub $1, %0\n\tjnz 1b\n\t"
			 "pop %%rbp\n\tlea 128(%%rsp), %%rsp" : "+r"(count) : "r"(chain) : "cc", "memory");
#elif defined(__aarch64__)
	__asm__ volatile("str x29, [sp, #-16]!\n\tmov x29, %1\n1:\tsubs %0, %0, #1\n\tb.ne 1b\n\tldr x29, [sp], #16" : "+r"(count) : "r"(chain) : "cc", "memory");
#endif
	sink += count;
}

int main(int count, char **words)
{
	if (count < 2)
		return 2;
	chain[0] = (unsigned long)&chain[2];
	chain[1] = 0x440300000001;
	chain[2] = (unsigned long)&chain[4];
	chain[3] = 0xa;
	for (double end = now() + atof(words[1]); now() < end;)
		astray();
	return 0;
}
