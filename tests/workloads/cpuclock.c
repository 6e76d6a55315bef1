// cpuclock PID: prints the CPU time of a process in ns, including its ended threads (clock_getcpuclockid(3)).
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
	struct timespec used;
	clockid_t clock;

	if (argc < 2 || clock_getcpuclockid(atoi(argv[1]), &clock) || clock_gettime(clock, &used))
		return 1;
	printf("%lld\n", used.tv_sec * 1000000000LL + used.tv_nsec);
	return 0;
}
