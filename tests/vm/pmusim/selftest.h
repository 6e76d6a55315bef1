/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations shared by the parts of selftest. */
#ifndef SELFTEST_H
#define SELFTEST_H

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>

#define DEBUGFS "/sys/kernel/debug/pmusim/"
#define SYSFS "/sys/bus/event_source/devices/"
#define SECOND 1000000000ULL

/* Prints one line per check, and ends the run at the first wrong one. */
void check(bool right, const char *claim, ...);
/* Checks a precondition of the test.  Silent when it holds. */
void must(bool right, const char *what, ...);
void equal(uint64_t is, uint64_t should, const char *claim, ...);

/* Like printf, into a file; returns 0 or an errno. */
int put(const char *path, const char *format, ...);
void must_put(const char *path, const char *format, ...);
char *get(const char *path);
void advance(uint64_t ns);
void manual(bool on);
void rates(const char *format, ...);

struct event {
	uint32_t type;
	uint64_t config;
	pid_t pid;
	int cpu;
	int group;
	unsigned long flags;
	uint64_t read_format;
	uint64_t period;
	bool inherit, disabled;
};

/* Returns a per-CPU raw event of the core PMU, for the caller to change. */
struct event core_event(uint64_t config, int cpu);
struct event uncore_event(const char *pmu, uint64_t config, int cpu);
int try_open(const struct event *e);	/* descriptor or -errno */
int must_open(const struct event *e);
uint64_t count(int fd);

/* A child that spins on a CPU with real-time priority, above all others. */
struct spinner {
	pid_t pid;
	uint64_t *turns;
};

struct spinner spin_on(int cpu);
void spinner_pause(struct spinner *s);
void spinner_resume(struct spinner *s);
void spinner_end(struct spinner *s);
void pin_to(int cpu);
void switch_often(int rounds);	/* between this process and a child */

void test_counts(void);
void test_tasks(void);
void test_placement(void);
void test_uncore(void);
void test_samples(void);
void test_reads_at_switches(void);

#endif
