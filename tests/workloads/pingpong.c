// pingpong SWITCHES CPU [CGROUP...]: passes a token round a ring of processes on one CPU. Each is in a
// separate cgroup (two in the caller's if none is named). Prints "cpu_ns_per_switch wall_ns_per_switch
// switches".
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void join_cgroup(const char *folder)
{
	char path[4200], pid[32];
	int length = snprintf(pid, sizeof(pid), "%d", getpid());

	snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	int file = open(path, O_WRONLY);

	if (file < 0 || write(file, pid, length) != length) {
		perror(path);
		_exit(1);
	}
	close(file);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void pass(int from, int to, long rounds, int first)
{
	char token = 0;

	for (long i = 0; i < rounds; i++) {
		if (first && write(to, &token, 1) != 1)
			_exit(1);
		if (read(from, &token, 1) != 1)
			_exit(1);
		if (!first && write(to, &token, 1) != 1)
			_exit(1);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	long switches = atol(argv[1]);
	int cpu = atoi(argv[2]), n = argc > 4 ? argc - 3 : 2;
	int (*pipes)[2] = calloc(n, sizeof(*pipes)), go[2];
	cpu_set_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL); // no other process would end the ring
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	for (int i = 0; i < n; i++)
		if (pipe(pipes[i]))
			return 1;
	if (pipe(go))
		return 1;
	for (int i = 0; i < n; i++) {
		if (fork())
			continue;
		char byte;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (argc > 3)
			join_cgroup(argv[3 + i % (argc - 3)]);
		close(go[1]);
		if (read(go[0], &byte, 1) < 0) // ends when the parent closes its side: all start together
			_exit(1);
		pass(pipes[i][0], pipes[(i + 1) % n][1], switches / n, i == 0);
	}
	struct timespec nap = { .tv_nsec = 20000000 };

	nanosleep(&nap, NULL);
	double start = seconds();

	close(go[1]);
	for (int i = 0; i < n; i++)
		wait(NULL);
	double wall = seconds() - start;
	struct rusage usage;

	getrusage(RUSAGE_CHILDREN, &usage);
	double cpu_seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
			     (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	long counted = usage.ru_nvcsw + usage.ru_nivcsw;

	printf("%.1f %.1f %ld\n", cpu_seconds * 1e9 / counted, wall * 1e9 / counted, counted);
	return 0;
}
