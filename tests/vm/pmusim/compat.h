/* SPDX-License-Identifier: GPL-2.0 */
/* Differences between 5.10 and 7.2.  No other file tests the version. */
#ifndef PMUSIM_COMPAT_H
#define PMUSIM_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/perf_event.h>
#include <linux/timer.h>
#include <linux/version.h>

/* Parameters of a probe on sched_switch. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 18, 0)
#define SIM_SWITCH_ARGS void *data, bool preempt, struct task_struct *prev, \
			struct task_struct *next, unsigned int prev_state
#else
#define SIM_SWITCH_ARGS void *data, bool preempt, struct task_struct *prev, \
			struct task_struct *next
#endif

/* A task's context goes on pointing to the PMU when its events are gone. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define SIM_TASKS_KEEP_PMU true
#else
#define SIM_TASKS_KEEP_PMU false
#endif

/* Without it, 5.10 and 6.1 treat a second core PMU since boot as an error. */
#ifdef PERF_PMU_CAP_HETEROGENEOUS_CPUS
#define SIM_CORE_CAPABILITIES PERF_PMU_CAP_HETEROGENEOUS_CPUS
#else
#define SIM_CORE_CAPABILITIES 0
#endif

/* Takes generic events whose upper half names it; since 5.13. */
#ifdef PERF_PMU_CAP_EXTENDED_HW_TYPE
#define SIM_HYBRID_CAPABILITIES (SIM_CORE_CAPABILITIES | PERF_PMU_CAP_EXTENDED_HW_TYPE)
#else
#define SIM_HYBRID_CAPABILITIES SIM_CORE_CAPABILITIES
#endif

static inline void sim_hrtimer_init(struct hrtimer *timer,
				    enum hrtimer_restart (*handler)(struct hrtimer *timer))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, handler, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	timer->function = handler;
#endif
}

static inline void sim_stack_timer_end(struct timer_list *timer)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
	timer_delete_sync(timer);
	timer_destroy_on_stack(timer);
#else
	del_timer_sync(timer);
	destroy_timer_on_stack(timer);
#endif
}

#endif /* PMUSIM_COMPAT_H */
