// SPDX-License-Identifier: GPL-2.0
/* selftest: rates, phases, tasks and cgroups, to the count. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "selftest.h"

#define CGROUP "/sys/fs/cgroup/pmusim"
#define GROUP_TIMES \
	(PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING)

static void test_lines(void)
{
	static const char lines[] =
		"cpu 0xc0 0xffff 5\n"
		"uncore_iio_* 0x83 0xff 1000000 cpu=1\n"
		"cpu 0x3c 0xffff 1 cpu=0 tgid=7 cgroup=4294967297 phase=20000:0:10000\n";

	rates("%s", lines);
	check(!strcmp(get(DEBUGFS "rates"), lines), "lines come back as written");
	check(put(DEBUGFS "rates", "clear\ncpu 1 1 1\ncpu 1 1\n") == EINVAL,
	      "a short line is wrong");
	check(put(DEBUGFS "rates", "cpu 1 1 1 uid=3\n") == EINVAL, "an unknown word is wrong");
	check(put(DEBUGFS "rates", "cpu 1 1 1 phase=30000:0:10000\n") == EINVAL,
	      "periods must divide the longest");
	check(!strcmp(get(DEBUGFS "rates"), lines), "a wrong write changes nothing");
}

static void test_rates(void)
{
	struct event e = core_event(0xc0, 1);
	int instructions, cycles, defaults, other;

	manual(true);
	rates("cpu c0 ffff 6000000000\ncpu 3c ffff 3000000000\n");
	instructions = must_open(&e);
	e.config = 0x3c;
	e.group = instructions;
	cycles = must_open(&e);
	e = core_event(0x12b1, 1);
	defaults = must_open(&e);
	e = core_event(0xc0, 0);
	other = must_open(&e);
	advance(1500000001);
	equal(count(instructions), 9000000006, "instructions");
	equal(count(cycles), 4500000003, "cycles");
	equal(count(defaults), 267027000, "an event without a line");
	must_put(DEBUGFS "rates", "cpu c0 ffff 7 cpu=1\n");
	advance(SECOND);
	equal(count(instructions), 9000000013, "a changed rate, from the write on");
	equal(count(other), 15000000006, "the same event on a CPU that the line does not name");
	must_put(DEBUGFS "rates", "cpu c0 ffff 1\n");
	advance(SECOND / 3);
	advance(SECOND / 3);
	advance(SECOND - 2 * (SECOND / 3));
	equal(count(instructions), 9000000014, "three thirds of a count");
	close(instructions);
	close(cycles);
	close(defaults);
	close(other);
}

static void test_generic(void)
{
	struct event e = core_event(0, 1);
	int fd, miss;

	rates("cpu 412e ffff 42\ncpu 0e12 ffff 43\n");
	e.type = PERF_TYPE_HARDWARE;
	e.config = PERF_COUNT_HW_CACHE_MISSES;
	fd = must_open(&e);
	e.type = PERF_TYPE_HW_CACHE;
	e.config = PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_RESULT_MISS << 16;
	miss = must_open(&e);
	advance(SECOND);
	equal(count(fd), 42, "PERF_TYPE_HARDWARE cache-misses");
	equal(count(miss), 43, "PERF_TYPE_HW_CACHE dTLB-load-misses");
	close(fd);
	close(miss);
	e.type = PERF_TYPE_HARDWARE;
	e.config = PERF_COUNT_HW_STALLED_CYCLES_BACKEND;
	check(try_open(&e) == -ENOENT, "stalled-cycles-backend is not there");
}

/* Rate 1000 in the first quarter of a millisecond, 10 in its second half, else 1. */
static void test_phases(void)
{
	struct event e = core_event(0xb1, 1);
	int fd = must_open(&e);
	uint64_t before;

	rates("cpu b1 ffff 1000000000\n"
	      "cpu b1 ffff 10000000000 phase=1000000:500000:1000000\n"
	      "cpu b1 ffff 1000000000000 phase=1000000:0:250000\n");
	before = count(fd);
	advance(250000);
	equal(count(fd) - before, 250000000, "the first phase");
	advance(1);
	equal(count(fd) - before, 250000001, "one nanosecond after it");
	advance(249999);
	equal(count(fd) - before, 250250000, "between the phases");
	advance(500000);
	equal(count(fd) - before, 255250000, "one whole period");
	advance(1000 * SECOND);
	equal(count(fd) - before, 255250000000000 + 255250000, "a million periods more at once");
	advance(300000);
	equal(count(fd) - before, 255250000000000 + 255250000 + 250050000, "and the next");
	equal(strtoull(get(DEBUGFS "clock_ns"), NULL, 10), 1000 * SECOND + 1300000,
	      "clock_ns, since the lines were cleared");
	close(fd);
}

static void test_reset_and_faults(void)
{
	struct event e = core_event(0xb1, 1);
	int fd = must_open(&e);

	rates("cpu b1 ffff 3000000000\n");
	ioctl(fd, PERF_EVENT_IOC_RESET, 0);
	must_put(DEBUGFS "faults", "cpu b1 ffff wrap32\n");
	check(!strcmp(get(DEBUGFS "faults"), "cpu 0xb1 0xffff wrap32\n"),
	      "faults come back as written");
	advance(2 * SECOND);
	equal(count(fd), 6000000000 - (1ULL << 32), "wrap32");
	must_put(DEBUGFS "faults", "cpu b1 ffff dead\n");
	advance(SECOND);
	equal(count(fd), 6000000000 - (1ULL << 32), "a dead counter stays where it was");
	ioctl(fd, PERF_EVENT_IOC_RESET, 0);
	must_put(DEBUGFS "faults", "cpu b1 ffff stuck_after=1000000007\n");
	advance(SECOND);
	equal(count(fd), 1000000007, "stuck_after");
	must_put(DEBUGFS "faults", "cpu b1 ffff wrap48\n");
	ioctl(fd, PERF_EVENT_IOC_RESET, 0);
	advance(100000 * SECOND);
	equal(count(fd), 300000000000000 - (1ULL << 48), "wrap48");
	must_put(DEBUGFS "faults", "clear");
	advance(SECOND);
	equal(count(fd), 300003000000000 - (1ULL << 48), "a sound counter again");
	check(put(DEBUGFS "faults", "cpu b1 ffff broken\n") == EINVAL, "an unknown fault is wrong");
	close(fd);
}

void test_counts(void)
{
	test_lines();
	test_rates();
	test_generic();
	test_phases();
	test_reset_and_faults();
}

/* Waits, as the last task may still be on the CPU, or a worker. */
static uint64_t wait_for_idle(int fd, uint64_t per_ms)
{
	int tries = 2000;
	uint64_t had, n;

	do {
		had = count(fd);
		advance(SECOND / 1000);
		n = count(fd) - had;
	} while (n != per_ms && tries--);
	return n;
}

static void test_tgid(void)
{
	struct spinner a = spin_on(1), b;
	struct event e = core_event(0xb1, 1);
	int wide = must_open(&e), task;
	uint64_t had;

	spinner_pause(&a);
	b = spin_on(1);
	e.pid = a.pid;
	e.cpu = -1;
	task = must_open(&e);
	rates("cpu b1 ffff 1\ncpu b1 ffff 1000 tgid=%d\ncpu b1 ffff 100000 tgid=%d\n"
	      "cpu b1 ffff 10000000 tgid=0\n", a.pid, b.pid);
	advance(SECOND);
	equal(count(wide), 100000, "a per-CPU event while B runs");
	spinner_pause(&b);
	spinner_resume(&a);
	advance(SECOND);
	equal(count(wide), 101000, "and while A runs");
	equal(count(task), 1000, "a per-task event of A");
	spinner_pause(&a);
	equal(wait_for_idle(wide, 10000), 10000, "and while the CPU idles, tgid=0, in a ms");
	/* A was reported as stopped before it left the CPU, where it still counts. */
	had = count(task);
	advance(SECOND);
	equal(count(task) - had, 0, "A no more");
	spinner_end(&a);
	spinner_end(&b);
	close(wide);
	close(task);
}

static uint64_t cgroup_id(const char *path)
{
	struct stat s;

	must(!stat(path, &s), "find cgroup %s", path);
	return s.st_ino;
}

static void test_cgroup(void)
{
	struct spinner a;
	struct event e = core_event(0xb1, 1);
	int wide, group, outer;

	mkdir(CGROUP, 0755);
	mkdir(CGROUP "/in", 0755);
	rates("cpu b1 ffff 1\ncpu b1 ffff 1000 cgroup=%llu\n",
	      (unsigned long long)cgroup_id(CGROUP));
	wide = must_open(&e);
	e.pid = open(CGROUP "/in", O_RDONLY);
	outer = e.pid;
	e.flags = PERF_FLAG_PID_CGROUP;
	group = must_open(&e);
	a = spin_on(1);
	advance(SECOND);
	equal(count(wide), 1, "a task outside the cgroup");
	equal(count(group), 0, "an event of the cgroup does not run");
	must_put(CGROUP "/in/cgroup.procs", "%d", a.pid);
	advance(SECOND);
	equal(count(wide), 1001, "a running task that was moved to below it");
	equal(count(group), 1000, "an event of its cgroup");
	must_put("/sys/fs/cgroup/cgroup.procs", "%d", a.pid);
	advance(SECOND);
	equal(count(wide), 1002, "and out again");
	equal(count(group), 1000, "and the event stopped");
	spinner_end(&a);
	close(group);
	close(wide);
	close(outer);
	rmdir(CGROUP "/in");
	rmdir(CGROUP);
}

/* Counted by the child alone, seen in the parent's event. */
static void test_inherit(void)
{
	struct event e = core_event(0xb1, -1);
	int fd, start[2];
	pid_t child;
	char byte;

	e.pid = 0;
	e.inherit = true;
	rates("cpu b1 ffff 0\n");
	fd = must_open(&e);
	must(!pipe(start), "make a pipe");
	fflush(stdout);
	child = fork();
	if (!child) {
		if (read(start[0], &byte, 1) != 1)
			_exit(1);
		advance(SECOND);
		_exit(0);
	}
	must_put(DEBUGFS "rates", "cpu b1 ffff 77 tgid=%d\n", child);
	advance(SECOND);
	must(write(start[1], "x", 1) == 1, "let the child go");
	waitpid(child, NULL, 0);
	equal(count(fd), 77, "an inherited event counts the child alone");
	close(fd);
	close(start[0]);
	close(start[1]);
}

void switch_often(int rounds)
{
	int to[2], from[2];
	char byte = 0;
	pid_t child;

	must(!pipe(to) && !pipe(from), "make two pipes");
	fflush(stdout);
	child = fork();
	if (!child) {
		close(to[1]);
		while (read(to[0], &byte, 1) == 1)
			if (write(from[1], &byte, 1) != 1)
				_exit(1);
		_exit(0);
	}
	close(to[0]);
	while (rounds--)
		must(write(to[1], &byte, 1) == 1 && read(from[0], &byte, 1) == 1,
		     "go round two tasks");
	close(to[1]);
	close(from[0]);
	close(from[1]);
	waitpid(child, NULL, 0);
}

/* Real clock: our counts and all others add up to the total over many switches. */
static void test_switches(void)
{
	struct event e = core_event(0xb0, 0);
	uint64_t value[8];
	int all, ours, others;

	manual(false);
	e.read_format = GROUP_TIMES;
	rates("cpu b0 ffff 1000000000\n"
	      "cpu b1 ffff 0\ncpu b1 ffff 1000000000 tgid=%d\n"
	      "cpu b2 ffff 1000000000\ncpu b2 ffff 0 tgid=%d\n", getpid(), getpid());
	e.disabled = true;
	all = must_open(&e);
	e.disabled = false;
	e.group = all;
	e.config = 0xb1;
	ours = must_open(&e);
	e.config = 0xb2;
	others = must_open(&e);
	ioctl(all, PERF_EVENT_IOC_ENABLE, 0);
	switch_often(2000);
	must(read(all, value, sizeof(value)) == 48, "read a group of three");
	check(value[4] > SECOND / 1000 && value[5] > SECOND / 1000,
	      "ours %llu and others' %llu both counted", (unsigned long long)value[4],
	      (unsigned long long)value[5]);
	equal(value[4] + value[5], value[3], "ours and others' make all, after 4000 switches");
	close(others);
	close(ours);
	close(all);
}

void test_tasks(void)
{
	manual(true);
	test_tgid();
	test_cgroup();
	test_inherit();
	test_switches();
}
