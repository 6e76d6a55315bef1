// SPDX-License-Identifier: GPL-2.0
/*
 * Life of an event: opened, put on a counter, started, accounted, stopped.
 *
 * A running event has been accounted up to se->start.  Accounting adds the
 * exact integral of se->pace over the time since then to se->unseen.  The part
 * below one count stays in se->rest, so that the sum does not depend on how
 * often, or when, it was accounted.
 */
#include <linux/slab.h>
#include "pmusim.h"

static u64 as_far_as_it_goes(const struct sim_event *se, u64 n)
{
	u64 had;

	switch (se->fault.kind) {
	case SIM_DEAD:
		return 0;
	case SIM_STUCK:
		had = local64_read(&se->event->count) + se->unseen;
		return had < se->fault.after ? min(n, se->fault.after - had) : 0;
	default:
		return n;
	}
}

/* Only between sim_enter() and sim_leave(): an NMI leaves such a CPU alone. */
void sim_event_account(struct sim_event *se, u64 now)
{
	u64 n;

	if (!se->running || (s64)(now - se->start) <= 0)
		return;
	n = sim_pace_count(&se->pace, se->start, now, &se->rest);
	n = as_far_as_it_goes(se, n);
	se->start = now;
	se->unseen += n;
	if (se->event->hw.sample_period)
		local64_sub(n, &se->event->hw.period_left);
}

/*
 * Gives perf core the accounted counts.  As in hardware, that happens only when
 * it reads: it assumes that the counts of a group stay as they were read.
 */
void sim_event_show(struct sim_event *se)
{
	local64_t *count = &se->event->count;
	u64 n = se->unseen;

	se->unseen = 0;
	if (se->fault.kind == SIM_WRAP32)
		local64_set(count, (local64_read(count) + n) & U32_MAX);
	else if (se->fault.kind == SIM_WRAP48)
		local64_set(count, (local64_read(count) + n) & GENMASK_ULL(47, 0));
	else
		local64_add(n, count);
}

/* Accounts up to @now, and applies @task and the current tables from then on. */
void sim_event_refresh(struct sim_event *se, struct task_struct *task, u64 now)
{
	sim_event_account(se, now);
	sim_rates_resolve(se, task, smp_processor_id());
	sim_faults_resolve(se);
}

/* As x86_perf_event_set_period(): a period that is over begins again. */
static void renew_period(struct hw_perf_event *hwc)
{
	s64 period = hwc->sample_period, left = local64_read(&hwc->period_left);

	if (!period || left > 0)
		return;
	left = left <= -period ? period : left + period;
	local64_set(&hwc->period_left, left ?: period);
	hwc->last_period = period;
}

static void sim_start(struct perf_event *event, int flags)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);
	struct sim_event *se = to_sim_event(event);
	struct hw_perf_event *hwc = &event->hw;

	if (!(hwc->state & PERF_HES_STOPPED))
		return;
	sim_enter();
	hwc->state = 0;
	sim_event_refresh(se, sim_task(), sc->now);
	se->start = sc->now;
	se->running = true;
	list_add_tail(&se->node, &sc->running);
	renew_period(hwc);
	if (hwc->sample_period)
		sc->rearm = true;
	sim_leave();
	perf_event_update_userpage(event);
}

void sim_stop(struct perf_event *event, int flags)
{
	struct sim_cpu *sc = this_cpu_ptr(&sim_cpus);
	struct sim_event *se = to_sim_event(event);
	struct hw_perf_event *hwc = &event->hw;

	if (hwc->state & PERF_HES_STOPPED)
		return;
	sim_enter();
	/* Between the switch probe and the switch, the pace is already the next task's. */
	if (se->by_task && se->task != current)
		sim_rates_resolve(se, current, smp_processor_id());
	sim_event_account(se, sc->now);
	sim_event_show(se);
	se->running = false;
	list_del_init(&se->node);
	hwc->state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (hwc->sample_period)
		sc->rearm = true;
	sim_leave();
}

static int sim_add(struct perf_event *event, int flags)
{
	struct sim_pmu *sp = to_sim_pmu(event->pmu);
	struct sim_box *box = this_cpu_ptr(sp->box);
	struct sim_event *se = to_sim_event(event);

	if (sp->core && sim_core(smp_processor_id()) != sp)
		return -EAGAIN;
	if (!sp->unlimited && !sim_place(box->owner, se, sim_taken(sp->name)))
		return -EAGAIN;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		sim_start(event, PERF_EF_RELOAD);
	return 0;
}

static void sim_del(struct perf_event *event, int flags)
{
	struct sim_box *box = this_cpu_ptr(to_sim_pmu(event->pmu)->box);
	struct sim_event *se = to_sim_event(event);
	int idx;

	sim_stop(event, PERF_EF_UPDATE);
	for (idx = 0; idx < SIM_COUNTERS; idx++) {
		if (box->owner[idx] == se) {
			box->owner[idx] = NULL;
			break;
		}
	}
	perf_event_update_userpage(event);
}

static void sim_read(struct perf_event *event)
{
	unsigned long flags;

	local_irq_save(flags);
	sim_enter();
	sim_event_account(to_sim_event(event), sim_now());
	sim_event_show(to_sim_event(event));
	sim_leave_quietly();
	local_irq_restore(flags);
}

static void sim_pmu_disable(struct pmu *pmu)
{
	sim_enter();
}

static void sim_pmu_enable(struct pmu *pmu)
{
	sim_leave();
}

/* Transactions only give the events of a group one time. */
static void sim_start_txn(struct pmu *pmu, unsigned int txn_flags)
{
	sim_enter();
}

static int sim_commit_txn(struct pmu *pmu)
{
	sim_leave();
	return 0;
}

static void sim_cancel_txn(struct pmu *pmu)
{
	sim_leave();
}

void sim_pmu_callbacks(struct pmu *pmu)
{
	pmu->add = sim_add;
	pmu->del = sim_del;
	pmu->start = sim_start;
	pmu->stop = sim_stop;
	pmu->read = sim_read;
	pmu->pmu_enable = sim_pmu_enable;
	pmu->pmu_disable = sim_pmu_disable;
	pmu->start_txn = sim_start_txn;
	pmu->commit_txn = sim_commit_txn;
	pmu->cancel_txn = sim_cancel_txn;
}

static void sim_destroy(struct perf_event *event)
{
	kfree(event->pmu_private);
	event->pmu_private = NULL;
}

int sim_event_new(struct perf_event *event, u64 config, u64 allowed)
{
	struct sim_event *se = kzalloc(sizeof(*se), GFP_KERNEL);
	int err;

	if (!se)
		return -ENOMEM;
	se->event = event;
	se->sp = to_sim_pmu(event->pmu);
	se->config = config;
	se->allowed = allowed;
	INIT_LIST_HEAD(&se->node);
	event->pmu_private = se;
	event->hw.state = PERF_HES_STOPPED;
	err = sim_group_fits(event);
	if (err)
		sim_destroy(event);
	else
		event->destroy = sim_destroy;
	return err;
}
