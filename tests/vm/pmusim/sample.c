// SPDX-License-Identifier: GPL-2.0
/*
 * Overflows: one timer per CPU is the overflow interrupt of its core PMU.
 *
 *   nmi=0  the timer's handler reports the overflow, with the interrupted registers
 *   nmi=1  it sends its own CPU an NMI, whose handler does; same registers
 *   nmi=2  another CPU watches the clock and sends the NMI, which so arrives
 *          where interrupts are masked, too; the NMI's own registers
 *
 * Between sim_enter() and sim_leave() the PMU counts as disabled: an NMI that
 * arrives there is sent again at the end.
 */
#include <linux/debugfs.h>
#include <linux/moduleparam.h>
#include <asm/irq_regs.h>
#ifdef CONFIG_X86
#include <asm/apic.h>
#include <asm/nmi.h>
#endif
#include "pmusim.h"

static unsigned int min_ns = 20000;
module_param(min_ns, uint, 0644);
MODULE_PARM_DESC(min_ns, "least time from arming the overflow timer to its end");

static unsigned int watch_ns = 100000;
module_param(watch_ns, uint, 0644);
MODULE_PARM_DESC(watch_ns, "nmi=2: how often a CPU looks at its neighbour's overflows");

int (*sim_overflow)(struct perf_event *event, struct perf_sample_data *data,
		    struct pt_regs *regs);
int sim_nmi;
static bool ready;
/* Counts of tasks in periods without a reported overflow. */
static atomic64_t unseen;

static bool samples(const struct sim_event *se)
{
	return se->running && se->event->hw.sample_period;
}

bool sim_sample_due(struct sim_event *se)
{
	return samples(se) && local64_read(&se->event->hw.period_left) <= 0;
}

/* Stops the event where perf core asks for it, as real handlers do. */
static void report(struct perf_event *event, struct pt_regs *regs)
{
	struct perf_sample_data data;

	if (!regs ||
	    (event->attr.exclude_user && user_mode(regs)) ||
	    (event->attr.exclude_kernel && !user_mode(regs)) ||
	    (event->attr.exclude_idle && is_idle_task(current)))
		return;
	perf_sample_data_init(&data, 0, event->hw.last_period);
	if (sim_overflow(event, &data, regs))
		sim_stop(event, 0);
}

/*
 * However late it is, an interrupt reports one overflow, as in hardware: later
 * ones are not seen.  The manual clock loses none.
 */
static void overflow(struct sim_event *se, struct pt_regs *regs)
{
	struct hw_perf_event *hwc = &se->event->hw;
	s64 left;

	do {
		hwc->last_period = hwc->sample_period;
		left = local64_read(&hwc->period_left) + hwc->sample_period;
		if (left <= 0 && !sim_clock_manual()) {
			if (!is_idle_task(current))
				atomic64_add(hwc->sample_period - left, &unseen);
			left = hwc->sample_period;
		}
		local64_set(&hwc->period_left, left);
		report(se->event, regs);
	} while (sim_sample_due(se));
}

/* Iterates over counters: perf core may stop any event of the list on the way. */
static void overflow_interrupt(struct pt_regs *regs)
{
	struct sim_box *box = this_cpu_ptr(sim_core(smp_processor_id())->box);
	struct sim_event *se;
	int idx;

	sim_enter();
	for (idx = 0; idx < SIM_COUNTERS; idx++) {
		se = READ_ONCE(box->owner[idx]);
		if (!se || !samples(se))
			continue;
		sim_event_account(se, sim_now());
		if (!sim_sample_due(se))
			continue;
		sim_event_show(se);
		overflow(se, regs);
	}
	this_cpu_ptr(&sim_cpus)->rearm = true;
	sim_leave();
}

/* Clock of the next overflow.  A manual clock makes none that is not due. */
static u64 next_due(const struct sim_cpu *sc)
{
	u64 due = SIM_NEVER;
	struct sim_event *se;
	s64 left;

	list_for_each_entry(se, &sc->running, node) {
		if (!samples(se))
			continue;
		left = local64_read(&se->event->hw.period_left);
		if (left <= 0)
			due = 0;
		else if (!sim_clock_manual() && se->fault.kind != SIM_DEAD)
			due = min(due, sim_pace_reach(&se->pace, se->start, left));
	}
	return due;
}

/* Sets the timer of this CPU for the events that run on it. */
void sim_sample_rearm(struct sim_cpu *sc)
{
	u64 due, ns;

	if (in_nmi() && sim_nmi != 2)
		return;		/* the handler of the timer does it */
	sc->rearm = false;
	due = next_due(sc);
	ns = due > sim_clock() ? due - sim_clock() : 0;
	if (sim_nmi == 2) {
		WRITE_ONCE(sc->due, due == SIM_NEVER ? due : ktime_get_mono_fast_ns() + ns);
		return;
	}
	if (due == SIM_NEVER)
		hrtimer_try_to_cancel(&sc->timer);
	else
		hrtimer_start(&sc->timer, ns_to_ktime(max_t(u64, ns, min_ns)),
			      HRTIMER_MODE_REL_PINNED_HARD);
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	struct sim_cpu *sc = container_of(timer, struct sim_cpu, timer);

	if (sc != this_cpu_ptr(&sim_cpus) || sim_nmi == 2)
		return HRTIMER_NORESTART;	/* its CPU went offline, or its job */
	if (!sim_nmi) {
		overflow_interrupt(get_irq_regs());
		return HRTIMER_NORESTART;	/* it was set again */
	}
	sim_sample_send(smp_processor_id());
	sim_enter();
	sc->rearm = true;
	sim_leave();
	return HRTIMER_NORESTART;
}

#ifdef CONFIG_X86
void sim_sample_send(int cpu)
{
	atomic_inc(&per_cpu(sim_cpus, cpu).nmis);
	apic->send_IPI_mask(cpumask_of(cpu), NMI_VECTOR);
}

static int on_nmi(unsigned int cmd, struct pt_regs *regs)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);

	/* Two merged NMIs leave a surplus, and none is unknown. */
	if (atomic_dec_if_positive(&sc->nmis) < 0)
		return NMI_DONE;
	if (sc->depth)
		sc->retry = true;
	else
		overflow_interrupt(sim_nmi == 2 ? regs : get_irq_regs() ?: regs);
	return NMI_HANDLED;
}
#else
void sim_sample_send(int cpu)
{
}
#endif

/* Runs on one CPU and watches the next one. */
static enum hrtimer_restart on_watch(struct hrtimer *timer)
{
	int cpu = cpumask_next(smp_processor_id(), cpu_online_mask);
	struct sim_cpu *next;
	u64 due;

	if (sim_nmi != 2)
		return HRTIMER_NORESTART;
	if (cpu >= nr_cpu_ids)
		cpu = cpumask_first(cpu_online_mask);
	next = &per_cpu(sim_cpus, cpu);
	due = READ_ONCE(next->due);
	if (due <= ktime_get_mono_fast_ns() && cmpxchg(&next->due, due, SIM_NEVER) == due)
		sim_sample_send(cpu);
	hrtimer_forward_now(timer, ns_to_ktime(max(watch_ns, 10000U)));
	return HRTIMER_RESTART;
}

static void start_watch(void *unused)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);

	WRITE_ONCE(sc->due, SIM_NEVER);
	hrtimer_start(&sc->watch, ns_to_ktime(watch_ns), HRTIMER_MODE_REL_PINNED_HARD);
}

static void set_mode(int mode)
{
	int cpu;

	WRITE_ONCE(sim_nmi, mode);
	if (mode == 2)
		on_each_cpu(start_watch, NULL, 1);
	else
		for_each_possible_cpu(cpu)
			hrtimer_cancel(&per_cpu(sim_cpus, cpu).watch);
	sim_refresh_all();
}

static int unseen_get(void *data, u64 *value)
{
	*value = atomic64_read(&unseen);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(unseen_fops, unseen_get, NULL, "%llu\n");

void sim_sample_add(struct dentry *dir)
{
	debugfs_create_file_unsafe("unseen", 0400, dir, NULL, &unseen_fops);
}

static int nmi_set(const char *text, const struct kernel_param *kp)
{
	int mode, err = kstrtoint(text, 10, &mode);

	if (err)
		return err;
	if (mode < 0 || mode > 2)
		return -EINVAL;
	if (mode && !IS_ENABLED(CONFIG_X86))
		return -EOPNOTSUPP;
	if (ready)
		set_mode(mode);
	else
		sim_nmi = mode;
	return 0;
}

static const struct kernel_param_ops nmi_ops = {
	.set = nmi_set,
	.get = param_get_int,
};
module_param_cb(nmi, &nmi_ops, &sim_nmi, 0644);
MODULE_PARM_DESC(nmi, "overflows: 0 interrupt, 1 NMI from the own CPU, 2 NMI from another");

/* Called before any event exists. */
void sim_sample_prepare(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct sim_cpu *sc = &per_cpu(sim_cpus, cpu);

		INIT_LIST_HEAD(&sc->running);
		sc->due = SIM_NEVER;
		sim_hrtimer_init(&sc->timer, on_timer);
		sim_hrtimer_init(&sc->watch, on_watch);
	}
}

/* Called before the core PMU exists. */
int sim_sample_init(void)
{
#ifdef CONFIG_X86
	int err = register_nmi_handler(NMI_LOCAL, on_nmi, 0, "pmusim");

	if (err)
		return err;
#endif
	ready = true;
	set_mode(sim_nmi);
	return 0;
}

void sim_sample_exit(void)
{
	int cpu;

	ready = false;
	sim_nmi = 0;
#ifdef CONFIG_X86
	unregister_nmi_handler(NMI_LOCAL, "pmusim");
#endif
	for_each_possible_cpu(cpu) {
		hrtimer_cancel(&per_cpu(sim_cpus, cpu).timer);
		hrtimer_cancel(&per_cpu(sim_cpus, cpu).watch);
	}
}
