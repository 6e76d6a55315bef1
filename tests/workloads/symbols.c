/* symbols SECONDS Burns CPU in a file with SYMBOLS symbols, which take a while to read. */
#include <stdlib.h>
#include <time.h>

#define TEXT(number) #number
#define OF(number) TEXT(number)
__asm__(".text\n"
	".altmacro\n"
	".macro function number\n"
	".type a_function_with_a_name_\\number, %function\n"
	"a_function_with_a_name_\\number: .byte 0\n"
	".size a_function_with_a_name_\\number, 1\n"
	".endm\n"
	".set next, 0\n"
	".rept " OF(SYMBOLS) "\n"
	"function %next\n"
	".set next, next + 1\n"
	".endr\n"
	".noaltmacro\n"
	".balign 16\n");

static volatile unsigned long sink;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) void burns(void)
{
	for (unsigned long i = 0; i < 1000000; i++)
		sink += i * 7;
}

int main(int count, char **words)
{
	if (count < 2)
		return 2;
	for (double end = now() + atof(words[1]); now() < end;)
		burns();
	return 0;
}
