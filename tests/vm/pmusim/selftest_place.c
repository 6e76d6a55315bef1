// SPDX-License-Identifier: GPL-2.0
/* selftest: groups, constraints, multiplexing, topdown, taken counters, uncore. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "selftest.h"

#define TIMES (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING)

static void close_all(int *fds, int n)
{
	while (n--)
		close(fds[n]);
}

/* Returns how many copies of an event, each with another umask, fit into one group. */
static int group_size(struct event e, int *err)
{
	int fds[32], n;

	for (n = 0; n < 32; n++) {
		e.group = n ? fds[0] : -1;
		fds[n] = try_open(&e);
		if (fds[n] < 0) {
			*err = -fds[n];
			break;
		}
		e.config += 0x1000;
	}
	close_all(fds, n);
	return n;
}

static void test_groups(void)
{
	int err = 0;

	equal(group_size(core_event(0x01b1, 1), &err), 8, "general events in a group");
	equal(err, EINVAL, "errno of the ninth");
	equal(group_size(core_event(0x01d1, 1), &err), 4, "events for counters 0 to 3");
	equal(group_size(core_event(0x01ce, 1), &err), 1, "events for counter 0");
	equal(group_size(uncore_event("uncore_iio_0", 0x0083, 0), &err), 2,
	      "iio events for counters 0 and 1");
	equal(group_size(uncore_event("uncore_iio_0", 0x0001, 0), &err), 4, "iio events");
	equal(group_size(uncore_event("uncore_irp_0", 0x0001, 0), &err), 2, "irp events");
	equal(group_size(uncore_event("uncore_imc_free_running_0", 0x10ff, 0), &err), 15,
	      "free running events, up to the last umask");
}

/* An event on counters 0 to 3 must make room for one that can only be on 0. */
static void test_rearrangement(void)
{
	static const uint64_t configs[] = { 0xc0, 0x3c, 0x01d1, 0x02d1, 0x03d1, 0xb1, 0xb2, 0xb3,
					    0xb4, 0x01ce };
	struct event e = core_event(0, 1);
	uint64_t value[3];
	int fds[10], i;

	manual(true);
	rates("cpu 0 0 1000\n");
	e.read_format = TIMES;
	for (i = 0; i < 10; i++) {
		e.config = configs[i];
		e.group = i ? fds[0] : -1;
		fds[i] = must_open(&e);
	}
	advance(SECOND);
	for (i = 0; i < 10; i++) {
		must(read(fds[i], value, sizeof(value)) == sizeof(value), "read event %d", i);
		equal(value[0], 1000, "event %d of 8 general and 2 fixed counters", i);
	}
	close_all(fds, 10);
}

static void test_multiplexing(void)
{
	struct event e = core_event(0xb1, 1);
	uint64_t value[3], low = SECOND, high = 0, scaled;
	int fds[12], i;

	manual(false);
	rates("cpu b1 ff 1000000000\n");
	e.read_format = TIMES;
	for (i = 0; i < 12; i++) {
		e.config = 0xb1 | i << 8;
		fds[i] = must_open(&e);
	}
	sleep(1);
	for (i = 0; i < 12; i++) {
		if (read(fds[i], value, sizeof(value)) != sizeof(value) || !value[2])
			check(false, "event %d of 12 ran", i);
		scaled = value[0] * SECOND / value[2];
		low = scaled < low ? scaled : low;
		high = scaled > high ? scaled : high;
		if (value[2] > value[1] * 9 / 10)
			check(false, "event %d ran %llu of %llu", i, (unsigned long long)value[2],
			      (unsigned long long)value[1]);
	}
	check(low > SECOND * 98 / 100 && high < SECOND * 102 / 100,
	      "12 events on 8 counters: rates by running time %llu to %llu",
	      (unsigned long long)low, (unsigned long long)high);
	close_all(fds, 12);
}

static void test_topdown(void)
{
	struct event e = core_event(0x8000, 1);
	uint64_t value[16];
	int fds[9], i;

	manual(true);
	check(try_open(&e) == -EINVAL, "a metric without slots is refused");
	e.config = 0xb1;
	fds[0] = must_open(&e);
	e.config = 0x8000;
	e.group = fds[0];
	check(try_open(&e) == -EINVAL, "a metric led by another event is refused");
	close(fds[0]);
	rates("cpu 400 ffff 18000000000\ncpu 8000 ffff 9000000000\ncpu 8100 ffff 1800000000\n"
	      "cpu 8200 ffff 3600000000\ncpu 8300 ffff 3600000000\n");
	e = core_event(0x400, 1);
	e.read_format = PERF_FORMAT_GROUP;
	for (i = 0; i < 9; i++) {
		fds[i] = must_open(&e);
		e.group = fds[0];
		e.config = 0x8000 + (i << 8);
	}
	advance(SECOND + 10);
	check(read(fds[0], value, sizeof(value)) == 80, "slots and 8 metrics are a group");
	equal(value[1], 18000000180, "slots");
	equal(value[2], 9000000090, "topdown-retiring");
	equal(value[2] + value[3] + value[4] + value[5], value[1], "four metrics make all slots");
	close_all(fds, 9);
}

static void test_taken(void)
{
	struct event e = core_event(0xb1, 1);
	int fds[8], i, ran = 0;

	rates("cpu b1 ff 1000\n");
	must_put(DEBUGFS "taken", "cpu 0x100000007\n");
	check(!strcmp(get(DEBUGFS "taken"), "cpu 0x100000007\n"), "taken comes back as written");
	for (i = 0; i < 6; i++) {
		e.config = 0xb1 | i << 8;
		e.group = i ? fds[0] : -1;
		fds[i] = must_open(&e);
	}
	advance(SECOND);
	equal(count(fds[0]), 0, "a group of 6 never counts on the 5 counters that are left");
	close_all(fds, 6);
	e.group = -1;
	for (i = 0; i < 8; i++) {
		e.config = 0xb1 | i << 8;
		fds[i] = must_open(&e);
	}
	advance(SECOND);
	for (i = 0; i < 8; i++)
		ran += count(fds[i]) > 0;
	equal(ran, 5, "of 8 single events, those that ran at one time");
	close_all(fds, 8);
	must_put(DEBUGFS "taken", "clear");
}

void test_placement(void)
{
	test_groups();
	test_rearrangement();
	test_multiplexing();
	test_topdown();
	test_taken();
}

static void file_is(const char *path, const char *text)
{
	char full[128];

	snprintf(full, sizeof(full), SYSFS "%s", path);
	check(!strcmp(strtok(get(full), "\n"), text), "%s is %s", path, text);
}

void test_uncore(void)
{
	struct event e = uncore_event("uncore_iio_0", 0x0483, 0), other;
	int first, second, channel, memory;

	file_is("cpu/type", "4");
	file_is("cpu/events/topdown-mem-bound", "event=0x00,umask=0x87");
	file_is("cpu/caps/pmu_name", "sapphire_rapids");
	file_is("uncore_iio_1/cpumask", "0-1");
	file_is("uncore_iio_0/die0", "0000:20");
	file_is("uncore_iio_3/die1", "0000:00");
	file_is("uncore_upi_0/die0", "upi_0,die_1");
	file_is("uncore_iio_0/format/fc_mask", "config:48-50");
	file_is("uncore_imc_3/events/cas_count_read.scale", "6.103515625e-5");
	e.pid = 0;
	check(try_open(&e) == -EINVAL, "uncore for a task is refused");
	e.cpu = -1;
	check(try_open(&e) == -EINVAL, "uncore for a task on any CPU is refused");
	e = uncore_event("uncore_iio_0", 0x0483, 0);
	e.period = 1000;
	check(try_open(&e) == -EINVAL, "uncore sampling is refused");
	e.period = 0;
	manual(true);
	rates("uncore_iio_* 83 ff 1000000\nuncore_iio_2 83 ff 7000000\n"
	      "uncore_iio_* 0x7001000000483 0xffffffffffffff 123456\n"
	      "uncore_iio_2 83 ff 5 cpu=1\nuncore_imc_free* 20ff ffff 9\n"
	      "uncore_iio_* 83 ff 1 tgid=0\n");
	first = must_open(&e);
	other = uncore_event("uncore_iio_2", 0x0483, 1);
	second = must_open(&other);
	e.config = 0x7001000000483;
	channel = must_open(&e);
	e = uncore_event("uncore_imc_free_running_0", 0x20ff, 0);
	memory = must_open(&e);
	advance(2500000000);
	equal(count(first), 2500000, "a box");
	equal(count(second), 12, "another, on the second die");
	equal(count(channel), 308640, "one channel of the first");
	equal(count(memory), 22, "a free running counter");
	close(first);
	close(second);
	close(channel);
	close(memory);
}
