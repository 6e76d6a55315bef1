// unwind SECONDS user|kernel|lost|endless: burns CPU below first(), second() and third(), for SECONDS of CPU
// time. It runs in user mode, in system calls, or in user mode with an invalid stack pointer (x86-64). In the
// last mode, call frame information is an endless loop of DWARF operations. Built without frame pointers.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KEPT __attribute__((noinline))
#define HERE __asm__ volatile("" ::: "memory") // no tail call

static volatile unsigned long sink;
static char zeros[1 << 16];

KEPT void burn(int rounds)
{
	for (int i = 0; i < rounds; i++)
		sink += i;
}

KEPT void call(int file)
{
	for (int i = 0; i < 20; i++)
		syscall(SYS_read, file, zeros, sizeof(zeros));
}

KEPT void lose(long rounds)
{
#ifdef __x86_64__
	// No signal comes, so no handler uses the stack.
	__asm__ volatile("mov %%rsp, %%r12\n\tmov $0x10, %%rsp\n1:\tdec %0\n\tjnz 1b\n\tmov %%r12, %%rsp"
			 : "+r"(rounds) : : "r12", "cc", "memory");
#else
	burn(rounds);
#endif
}

KEPT void endless(long rounds)
{
	// DW_CFA_def_cfa_expression of 3 bytes: DW_OP_skip to itself.
	__asm__ volatile(".cfi_remember_state\n\t.cfi_escape 0x0f, 3, 0x2f, 0xfd, 0xff" : : : "memory");
	for (long i = 0; i < rounds; i++)
		sink += i;
	__asm__ volatile(".cfi_restore_state" : : : "memory");
}

KEPT void third(const char *how, int file)
{
	char room[200];

	memset(room, 0, sizeof(room));
	sink += room[sink % sizeof(room)];
	if (!strcmp(how, "kernel"))
		call(file);
	else if (!strcmp(how, "lost"))
		lose(200000);
	else if (!strcmp(how, "endless"))
		endless(20000);
	else
		burn(20000);
	HERE;
}

KEPT void second(const char *how, int file, int depth)
{
	if (depth)
		second(how, file, depth - 1);
	else
		third(how, file);
	HERE;
}

KEPT void first(const char *how, int file)
{
	second(how, file, 3);
	HERE;
}

static double cpu_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int file = open("/dev/zero", 0);

	while (argc > 2 && cpu_seconds() < atof(argv[1]))
		for (int i = 0; i < 100; i++)
			first(argv[2], file);
	return 0;
}
