// signals COMMAND…: executes a command with no signal ignored, not even the C library's own (32 and 33).
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	// struct kernel_sigaction: SIG_DFL, no flags, no restorer, no mask.
	unsigned long by_default[4] = {0};

	for (int number = 1; number <= 64; number++)
		syscall(SYS_rt_sigaction, number, by_default, 0, 8);
	if (argc > 1)
		execvp(argv[1], argv + 1);
	return 127;
}
