// SPDX-License-Identifier: GPL-2.0
/*
 * Clock that all counters follow, and the moments at which it stands still.
 *
 * It is CLOCK_MONOTONIC plus an offset, or, with manual_clock, a number that
 * moves only when advance_ns is written.  It never jumps when the two change
 * places.  Scheduling, reads and accounting that belong together happen between
 * sim_enter() and sim_leave(), and so at one time.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/mutex.h>
#include <linux/timekeeping.h>
#include "pmusim.h"

#define ADVANCE_MAX_NS (1000000ULL * NSEC_PER_SEC)

struct clock_state {
	bool manual;
	s64 offset;		/* to CLOCK_MONOTONIC */
};

static struct clock_state states[2];
static struct clock_state *state = &states[0];
static atomic64_t manual_ns = ATOMIC64_INIT(0);
static DEFINE_MUTEX(clock_mutex);

DEFINE_PER_CPU(struct sim_cpu, sim_cpus);

u64 sim_clock(void)
{
	/* Pairs with the release in manual_set(). */
	const struct clock_state *s = smp_load_acquire(&state);

	if (s->manual)
		return atomic64_read(&manual_ns);
	return ktime_get_mono_fast_ns() + s->offset;
}

bool sim_clock_manual(void)
{
	return READ_ONCE(READ_ONCE(state)->manual);
}

/* Stops the clock on this CPU.  Nests; an NMI may come at any instruction. */
void sim_enter(void)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);

	if (!sc->depth)
		sc->now = sim_clock();
	barrier();
	sc->depth++;
	barrier();
}

/* As sim_leave(), for callers that may hold the lock of a timer base. */
void sim_leave_quietly(void)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);

	if (WARN_ON_ONCE(!sc->depth))
		return;
	barrier();
	sc->depth--;
	barrier();
	if (!sc->depth && sc->retry && !in_nmi()) {
		sc->retry = false;
		sim_sample_send(smp_processor_id());
	}
}

void sim_leave(void)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);

	/* Set before depth falls, so that no NMI falls between the two. */
	if (sc->depth == 1 && sc->rearm)
		sim_sample_rearm(sc);
	sim_leave_quietly();
}

u64 sim_now(void)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);

	return sc->depth ? sc->now : sim_clock();
}

static void refresh(void *info)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);
	struct sim_event *se;
	unsigned long flags;

	local_irq_save(flags);
	sim_enter();
	list_for_each_entry(se, &sc->running, node)
		sim_event_refresh(se, sim_task(), *(u64 *)info);
	sc->rearm = true;
	sim_leave();
	local_irq_restore(flags);
}

/* Accounts all events up to now, and applies the present tables from then on. */
void sim_refresh_all(void)
{
	u64 now = sim_clock();

	on_each_cpu(refresh, &now, 1);
}

static void look_for_due(void *info)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);
	struct sim_event *se;
	unsigned long flags;

	local_irq_save(flags);
	sim_enter();
	list_for_each_entry(se, &sc->running, node)
		if (sim_sample_due(se))
			WRITE_ONCE(*(bool *)info, true);
	sim_leave();
	local_irq_restore(flags);
}

/* Overflows come from timers: they are late by a few microseconds. */
static int wait_for_overflows(void)
{
	int tries;

	for (tries = 0; tries < 5000; tries++) {
		bool due = false;

		on_each_cpu(look_for_due, &due, 1);
		if (!due)
			return 0;
		usleep_range(100, 300);
	}
	return -ETIMEDOUT;
}

static int advance_set(void *data, u64 ns)
{
	int err = -EINVAL;

	mutex_lock(&clock_mutex);
	if (sim_clock_manual() && ns <= ADVANCE_MAX_NS) {
		atomic64_add(ns, &manual_ns);
		sim_refresh_all();
		err = wait_for_overflows();
	}
	mutex_unlock(&clock_mutex);
	return err;
}
DEFINE_DEBUGFS_ATTRIBUTE(advance_fops, NULL, advance_set, "%llu\n");

static int manual_set(void *data, u64 value)
{
	struct clock_state *next;
	u64 now;

	mutex_lock(&clock_mutex);
	if (sim_clock_manual() != !!value) {
		next = state == &states[0] ? &states[1] : &states[0];
		now = sim_clock();
		next->manual = value;
		next->offset = now - ktime_get_mono_fast_ns();
		atomic64_set(&manual_ns, now);
		/* Pairs with the acquire in sim_clock(). */
		smp_store_release(&state, next);
		/* Also waits for readers of the state that is changed next. */
		sim_refresh_all();
	}
	mutex_unlock(&clock_mutex);
	return 0;
}

static int manual_get(void *data, u64 *value)
{
	*value = sim_clock_manual();
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(manual_fops, manual_get, manual_set, "%llu\n");

static int clock_get(void *data, u64 *value)
{
	*value = sim_clock() - sim_rates_epoch();
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(clock_fops, clock_get, NULL, "%llu\n");

void sim_clock_add(struct dentry *dir)
{
	debugfs_create_file_unsafe("manual_clock", 0600, dir, NULL, &manual_fops);
	debugfs_create_file_unsafe("advance_ns", 0200, dir, NULL, &advance_fops);
	debugfs_create_file_unsafe("clock_ns", 0400, dir, NULL, &clock_fops);
}
