// SPDX-License-Identifier: GPL-2.0
/*
 * Rates that depend on the task: events that run on over a context switch are
 * accounted at it.
 *
 * There are two probes on sched_switch, one before all others and one after.
 * Between them the clock stands still.  So a BPF program that reads counters at
 * a switch gives each task exactly what was counted for it.
 */
#include <linux/cgroup.h>
#include <linux/sched.h>
#include <linux/tracepoint.h>
#include "pmusim.h"

#define FIRST INT_MAX		/* above TRACEPOINT_DEFAULT_PRIO */
#define LAST INT_MIN

/*
 * Returns the task to which this CPU's counts go.  From the probe to the switch
 * itself that is the next one, though current is still the previous one.
 */
struct task_struct *sim_task(void)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);

	return sc->prev == current ? sc->next : current;
}

static void before_others(SIM_SWITCH_ARGS)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);
	struct sim_event *se;

	sc->prev = prev;
	sc->next = next;
	if (list_empty(&sc->running))
		return;
	sim_enter();
	sc->frozen = true;
	list_for_each_entry(se, &sc->running, node) {
		if (!se->by_task)
			continue;
		sim_event_refresh(se, next, sc->now);
		if (se->event->hw.sample_period)
			sc->rearm = true;
	}
}

static void after_others(SIM_SWITCH_ARGS)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);

	if (!sc->frozen)
		return;
	sc->frozen = false;
	sim_leave();
}

static void moved(void *unused)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);
	struct sim_event *se;

	sim_enter();
	list_for_each_entry(se, &sc->running, node)
		if (se->by_task)
			sim_event_refresh(se, sim_task(), sc->now);
	sc->rearm = true;
	sim_leave();
}

/* A task changes its cgroup, perhaps while it runs.  Called with interrupts off. */
static void on_attach(void *data, struct cgroup *cgrp, const char *path,
		      struct task_struct *task, bool threadgroup)
{
	int cpu;

	for_each_online_cpu(cpu)
		smp_call_function_single_async(cpu, &per_cpu(sim_cpus, cpu).csd);
}

static struct probe {
	const char *tracepoint;
	void *function;
	int priority;
	struct tracepoint *at;
} probes[] = {
	{ "sched_switch", after_others, LAST },
	{ "sched_switch", before_others, FIRST },
	{ "cgroup_attach_task", on_attach, FIRST },
};

static void find(struct tracepoint *tp, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(tp->name, probes[i].tracepoint))
			probes[i].at = tp;
}

static void nothing(void *unused)
{
}

/* Removes before_others() before after_others(), which restarts a stopped clock. */
static void unregister(int n)
{
	while (n--)
		tracepoint_probe_unregister(probes[n].at, probes[n].function, NULL);
	tracepoint_synchronize_unregister();
	on_each_cpu(nothing, NULL, 1);	/* what on_attach() sent has run */
}

int sim_task_init(void)
{
	int cpu, i, err;

	for_each_possible_cpu(cpu)
		per_cpu(sim_cpus, cpu).csd.func = moved;
	for_each_kernel_tracepoint(find, NULL);
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		err = -ENOENT;
		if (probes[i].at)
			err = tracepoint_probe_register_prio(probes[i].at, probes[i].function,
							     NULL, probes[i].priority);
		if (err) {
			pr_err("pmusim: tracepoint %s: %d\n", probes[i].tracepoint, err);
			unregister(i);
			return err;
		}
	}
	return 0;
}

void sim_task_exit(void)
{
	unregister(ARRAY_SIZE(probes));
}
