// scale FOLDER STANDING MADE FORKS SECONDS: for SECONDS, starts FORKS processes a second in the cgroups
// FOLDER/0 to FOLDER/STANDING-1 and in FOLDER/deep, 60 levels down. Makes MADE cgroups a second,
// FOLDER/made-0 and so on, which have some of the processes for a moment and are removed. Prints "processes
// made": the numbers started and made, if less than requested.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEP_NS 10000000LL
// Number of steps for which a cgroup stays.
#define STAYS 10

// Number of levels below FOLDER.
#define DEPTH 60

static const char *folder;

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// Starts a process in one of our cgroups, which works for a moment.
static int start(const char *name)
{
	struct clone_args arguments = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD };
	char path[512];
	pid_t child;
	int group;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	group = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (group < 0)
		return -1;
	arguments.cgroup = (uint64_t)group;
	child = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
	if (child == 0) {
		for (volatile int i = 0; i < 10000; i++)
			;
		_exit(0);
	}
	close(group);
	return child < 0 ? -1 : 0;
}

// Writes the path deep/d/d, and so on.
static void deep_path(char *name, size_t bytes)
{
	int length = snprintf(name, bytes, "deep");

	for (int level = 1; level < DEPTH; level++)
		length += snprintf(name + length, bytes - (size_t)length, "/d");
}

static void made_path(char *path, size_t bytes, long number)
{
	snprintf(path, bytes, "%s/made-%ld", folder, number);
}

// Removes a cgroup that is empty by now.
static void end(long number)
{
	char path[512];

	made_path(path, sizeof(path), number);
	while (rmdir(path) != 0 && errno == EBUSY)
		usleep(1000);
}

int main(int argc, char **argv)
{
	long standing, made_per_step, forks_per_step, made = 0, ended = 0, processes = 0, next = 0, steps;
	char name[256], path[512], deep[256];
	int64_t due;

	if (argc != 6)
		return 2;
	folder = argv[1];
	standing = atol(argv[2]);
	made_per_step = atol(argv[3]) / 100;
	forks_per_step = atol(argv[4]) / 100;
	steps = atol(argv[5]) * 100;
	deep_path(deep, sizeof(deep));
	// The children are not reaped by wait(2).
	signal(SIGCHLD, SIG_IGN);
	due = now_ns();
	for (long step = 0; step < steps; step++) {
		long first = made;

		for (; made < first + made_per_step; made++) {
			made_path(path, sizeof(path), made);
			if (mkdir(path, 0755) != 0)
				return 1;
		}
		for (long i = 0; i < forks_per_step; i++, next++) {
			if (i < 2 * made_per_step)
				snprintf(name, sizeof(name), "made-%ld", first + i / 2);
			else if (i == forks_per_step - 1)
				snprintf(name, sizeof(name), "%s", deep);
			else
				snprintf(name, sizeof(name), "%ld", next * 7919 % standing);
			if (start(name) == 0)
				processes++;
		}
		for (; step >= STAYS && ended < first - (STAYS - 1) * made_per_step; ended++)
			end(ended);
		due += STEP_NS;
		// Processes that could not be started in time are not made up for.
		if (now_ns() > due)
			due = now_ns();
		else
			usleep((useconds_t)((due - now_ns()) / 1000));
	}
	for (; ended < made; ended++)
		end(ended);
	while (waitpid(-1, NULL, 0) > 0)
		;
	printf("%ld %ld\n", processes, made);
	return 0;
}
