// brief N MS: N processes in turn, each of which executes this program again and burns CPU time in one
// function.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static long cpu_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

__attribute__((noinline)) static void burn_briefly(void)
{
	for (volatile long left = 20000; left > 0; left--)
		;
}

int main(int argc, char **argv)
{
	if (argc == 2) {
		long end = cpu_us() + atol(argv[1]) * 1000;

		while (cpu_us() < end)
			burn_briefly();
		return 0;
	}
	for (int left = argc > 2 ? atoi(argv[1]) : 0; left > 0; left--) {
		char *child_argv[] = { argv[0], argv[2], NULL };
		pid_t child;

		if (posix_spawn(&child, argv[0], NULL, NULL, child_argv, environ) != 0)
			return 1;
		waitpid(child, NULL, 0);
	}
	printf("done\n");
	return 0;
}
