// forks N [SECONDS]: N children in turn, each touching 64 pages. Then it prints the kernel's counts for all
// of them and itself, "cpu_ns minor_faults major_faults voluntary involuntary", and stays for a while.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void touch(void)
{
	size_t bytes = 64 * 4096;
	char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		_exit(1);
	for (size_t i = 0; i < bytes; i += 4096)
		pages[i] = 1;
	for (volatile int i = 0; i < 200000; i++)
		;
	_exit(0);
}

static void add(int who, long long *sums)
{
	struct rusage usage;

	getrusage(who, &usage);
	sums[0] += (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000LL;
	sums[0] += (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000LL;
	sums[1] += usage.ru_minflt;
	sums[2] += usage.ru_majflt;
	sums[3] += usage.ru_nvcsw;
	sums[4] += usage.ru_nivcsw;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 100;
	long long sums[5] = { 0 };

	for (int i = 0; i < n; i++) {
		pid_t child = fork();

		if (child < 0)
			return 1;
		if (child == 0)
			touch();
		waitpid(child, NULL, 0);
	}
	add(RUSAGE_SELF, sums);
	add(RUSAGE_CHILDREN, sums);
	printf("%lld %lld %lld %lld %lld\n", sums[0], sums[1], sums[2], sums[3], sums[4]);
	fflush(stdout);
	sleep(argc > 2 ? atoi(argv[2]) : 0);
	return 0;
}
