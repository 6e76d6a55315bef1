// SPDX-License-Identifier: GPL-2.0
/*
 * selftest PMUSIM.KO: loads the module in a guest and checks its guarantees.
 *
 * Counts are compared for equality wherever the manual clock makes that
 * possible.  Ends with 0, or with 1 at the first wrong check.  The guest must
 * have two CPUs, debugfs and a pure cgroup v2 with subtree_control written.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "selftest.h"

void check(bool right, const char *claim, ...)
{
	va_list args;

	printf("%s ", right ? "ok   " : "WRONG");
	va_start(args, claim);
	vprintf(claim, args);
	va_end(args);
	putchar('\n');
	if (!right)
		exit(1);
}

void must(bool right, const char *what, ...)
{
	va_list args;

	if (right)
		return;
	printf("WRONG: cannot ");
	va_start(args, what);
	vprintf(what, args);
	va_end(args);
	printf(": %s\n", strerror(errno));
	exit(1);
}

void equal(uint64_t is, uint64_t should, const char *claim, ...)
{
	char text[256];
	va_list args;

	va_start(args, claim);
	vsnprintf(text, sizeof(text), claim, args);
	va_end(args);
	if (is == should)
		check(true, "%s: %llu", text, (unsigned long long)is);
	else
		check(false, "%s: %llu, not %llu", text, (unsigned long long)is,
		      (unsigned long long)should);
}

static int vput(const char *path, const char *format, va_list args)
{
	char *text;
	int fd, length, err = 0;

	length = vasprintf(&text, format, args);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, text, length) != length)
		err = errno;
	if (fd >= 0)
		close(fd);
	free(text);
	return err;
}

int put(const char *path, const char *format, ...)
{
	va_list args;
	int err;

	va_start(args, format);
	err = vput(path, format, args);
	va_end(args);
	return err;
}

void must_put(const char *path, const char *format, ...)
{
	va_list args;
	int err;

	va_start(args, format);
	err = vput(path, format, args);
	va_end(args);
	errno = err;
	must(!err, "write to %s", path);
}

char *get(const char *path)
{
	static char text[65536];
	ssize_t n, used = 0;
	int fd = open(path, O_RDONLY);

	must(fd >= 0, "open %s", path);
	while ((n = read(fd, text + used, sizeof(text) - 1 - used)) > 0)
		used += n;
	close(fd);
	text[used] = 0;
	return text;
}

void advance(uint64_t ns)
{
	must_put(DEBUGFS "advance_ns", "%llu", (unsigned long long)ns);
}

void manual(bool on)
{
	must_put(DEBUGFS "manual_clock", "%d", on);
}

/* Replaces all lines. */
void rates(const char *format, ...)
{
	char text[8192];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	must_put(DEBUGFS "rates", "clear\n%s", text);
}

struct event core_event(uint64_t config, int cpu)
{
	return (struct event) { .type = PERF_TYPE_RAW, .config = config, .pid = -1, .cpu = cpu,
				.group = -1 };
}

struct event uncore_event(const char *pmu, uint64_t config, int cpu)
{
	struct event e = core_event(config, cpu);
	char path[128];

	snprintf(path, sizeof(path), SYSFS "%s/type", pmu);
	e.type = atoi(get(path));
	return e;
}

int try_open(const struct event *e)
{
	struct perf_event_attr attr = {
		.type = e->type,
		.size = sizeof(attr),
		.config = e->config,
		.sample_period = e->period,
		.sample_type = e->period ? PERF_SAMPLE_IP | PERF_SAMPLE_TIME : 0,
		.read_format = e->read_format,
		.inherit = e->inherit,
		.disabled = e->disabled,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};
	int fd = syscall(SYS_perf_event_open, &attr, e->pid, e->cpu, e->group, e->flags);

	return fd < 0 ? -errno : fd;
}

int must_open(const struct event *e)
{
	int fd = try_open(e);

	must(fd >= 0, "open type %u config 0x%llx", e->type, (unsigned long long)e->config);
	return fd;
}

uint64_t count(int fd)
{
	uint64_t value[8];

	must(read(fd, value, sizeof(value)) >= 8, "read a counter");
	return value[0];
}

void pin_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	must(!sched_setaffinity(0, sizeof(set), &set), "pin to CPU %d", cpu);
}

static void wait_for_turns(const struct spinner *s)
{
	uint64_t had = __atomic_load_n(s->turns, __ATOMIC_RELAXED);

	while (__atomic_load_n(s->turns, __ATOMIC_RELAXED) == had)
		usleep(1000);
}

struct spinner spin_on(int cpu)
{
	struct sched_param priority = { .sched_priority = 50 };
	struct spinner s;
	cpu_set_t set;

	s.turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	*s.turns = 0;
	fflush(stdout);
	s.pid = fork();
	if (!s.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set) ||
		    sched_setscheduler(0, SCHED_FIFO, &priority))
			_exit(1);
		for (;;)
			__atomic_fetch_add(s.turns, 1, __ATOMIC_RELAXED);
	}
	wait_for_turns(&s);
	return s;
}

void spinner_pause(struct spinner *s)
{
	kill(s->pid, SIGSTOP);
	waitpid(s->pid, NULL, WUNTRACED);
}

void spinner_resume(struct spinner *s)
{
	kill(s->pid, SIGCONT);
	wait_for_turns(s);
}

void spinner_end(struct spinner *s)
{
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	munmap(s->turns, 4096);
}

static int load(const char *module, const char *parameters)
{
	int fd = open(module, O_RDONLY), err;

	if (fd < 0)
		return errno;
	err = syscall(SYS_finit_module, fd, parameters, 0) ? errno : 0;
	close(fd);
	return err;
}

static int unload(void)
{
	return syscall(SYS_delete_module, "pmusim", O_NONBLOCK) ? errno : 0;
}

static void test_load(const char *module)
{
	struct event e = core_event(0xb1, 1);
	int fd, i;

	check(load(module, "gp=33") == EINVAL, "a wrong parameter is refused");
	for (i = 0; i < 3; i++) {
		check(!load(module, "dies=2"), "load %d", i + 1);
		manual(true);
		rates("cpu b1 ffff 1000");
		fd = must_open(&e);
		check(unload() == EWOULDBLOCK, "an open event keeps the module");
		advance(SECOND);
		equal(count(fd), 1000, "a per-CPU count");
		close(fd);
		usleep(100000);		/* events are freed after a grace period */
		check(!unload(), "unload %d", i + 1);
	}
	check(!load(module, "dies=2"), "load to stay");
}

static void test_unload(void)
{
	struct utsname system;
	int major, minor;

	usleep(200000);
	uname(&system);
	must(sscanf(system.release, "%d.%d", &major, &minor) == 2, "read %s", system.release);
	if (major < 6 || (major == 6 && minor < 2))
		check(unload() == EWOULDBLOCK, "before 6.2 the module stays after per-task use");
	else
		check(!unload(), "unload after per-task use");
}

/* The kernel log must contain no complaint. */
static void test_log(void)
{
	static const char * const bad[] = { "WARNING", "BUG", "Call Trace", "unknown NMI",
					    "unknown reason", "lockup", "stall" };
	char record[8192];
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	ssize_t n;
	size_t i;

	while ((n = read(fd, record, sizeof(record) - 1)) > 0) {
		record[n] = 0;
		for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
			if (strstr(record, bad[i]))
				check(false, "kernel log: %s", record);
	}
	close(fd);
	check(true, "a clean kernel log");
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: selftest PMUSIM.KO\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	must_put("/proc/sys/kernel/sched_rt_runtime_us", "-1");
	must_put("/proc/sys/kernel/perf_cpu_time_max_percent", "0");
	pin_to(0);
	test_load(argv[1]);
	test_counts();
	test_tasks();
	test_reads_at_switches();
	test_placement();
	test_uncore();
	test_samples();
	test_unload();
	test_log();
	puts("all right");
	return 0;
}
