// SPDX-License-Identifier: GPL-2.0
/*
 * Table of rates, and the exact integral of its lines.
 *
 *   PMU-GLOB CONFIG MASK RATE [cpu=N] [tgid=N] [cgroup=ID] [phase=PERIOD:FROM:TO]
 *
 * The last line that matches an event, its CPU, the task that runs there and
 * the time wins.  An event without a line counts by default_rate().
 */
#include <linux/cgroup.h>
#include <linux/glob.h>
#include <linux/math64.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include "pmusim.h"

#define RATE_MAX (1000 * NSEC_PER_SEC)	/* counts per second */
#define PERIOD_MIN_NS (10 * NSEC_PER_USEC)
#define PERIOD_RATIO_MAX 10000
#define REACH_STEPS 64
#define FAR_NS (1000000ULL * NSEC_PER_SEC)

struct sim_rate {
	char pmu[SIM_NAME_LEN];
	u64 config, mask;
	u64 cgroup;		/* 0: any */
	s32 cpu, tgid;		/* -1: any */
	struct sim_phase phase;	/* no period: always; it holds the rate, too */
};

static int parse_option(char *word, struct sim_rate *line)
{
	struct sim_phase *phase = &line->phase;
	int used = 0;

	if (!strncmp(word, "cpu=", 4))
		return kstrtos32(word + 4, 10, &line->cpu);
	if (!strncmp(word, "tgid=", 5))
		return kstrtos32(word + 5, 10, &line->tgid);
	if (!strncmp(word, "cgroup=", 7))
		return kstrtou64(word + 7, 10, &line->cgroup);
	if (sscanf(word, "phase=%llu:%llu:%llu%n", &phase->period, &phase->from, &phase->to,
		   &used) != 3 || word[used])
		return -EINVAL;
	if (phase->period < PERIOD_MIN_NS || phase->from >= phase->to ||
	    phase->to > phase->period)
		return -EINVAL;
	return 0;
}

static int rate_parse(char *text, void *entry)
{
	struct sim_rate *line = entry;
	unsigned int n = 0;
	char *word;
	int err = 0;

	line->cpu = -1;
	line->tgid = -1;
	while (!err && (word = strsep(&text, " \t"))) {
		if (!*word)
			continue;
		switch (n++) {
		case 0:
			err = strscpy(line->pmu, word, sizeof(line->pmu)) < 0 ? -EINVAL : 0;
			break;
		case 1:
			err = kstrtou64(word, 16, &line->config);
			break;
		case 2:
			err = kstrtou64(word, 16, &line->mask);
			break;
		case 3:
			err = kstrtou64(word, 10, &line->phase.rate);
			break;
		default:
			err = parse_option(word, line);
		}
	}
	if (!err && (n < 4 || line->phase.rate > RATE_MAX))
		err = -EINVAL;
	return err;
}

static void rate_show(struct seq_file *m, const void *entry)
{
	const struct sim_rate *line = entry;

	seq_printf(m, "%s 0x%llx 0x%llx %llu", line->pmu, line->config, line->mask,
		   line->phase.rate);
	if (line->cpu >= 0)
		seq_printf(m, " cpu=%d", line->cpu);
	if (line->tgid >= 0)
		seq_printf(m, " tgid=%d", line->tgid);
	if (line->cgroup)
		seq_printf(m, " cgroup=%llu", line->cgroup);
	if (line->phase.period)
		seq_printf(m, " phase=%llu:%llu:%llu", line->phase.period, line->phase.from,
			   line->phase.to);
	seq_putc(m, '\n');
}

/*
 * Periods must divide the longest one, so that everything repeats after it and
 * a span of any length is integrated in a bounded number of steps.
 */
static int rates_check(const struct sim_table *table)
{
	const struct sim_rate *lines = (const struct sim_rate *)table->lines;
	u64 longest = 0, rest, period;
	unsigned int i;

	for (i = 0; i < table->n; i++)
		longest = max(longest, lines[i].phase.period);
	for (i = 0; i < table->n; i++) {
		period = lines[i].phase.period;
		if (!period)
			continue;
		div64_u64_rem(longest, period, &rest);
		if (rest || div64_u64(longest, period) > PERIOD_RATIO_MAX)
			return -EINVAL;
	}
	return 0;
}

struct sim_file sim_rates_file = {
	.name = "rates",
	.size = sizeof(struct sim_rate),
	.parse = rate_parse,
	.show = rate_show,
	.check = rates_check,
};

u64 sim_rates_epoch(void)
{
	struct sim_table *table;
	u64 epoch;

	rcu_read_lock();
	table = rcu_dereference(sim_rates_file.table);
	epoch = table->epoch;
	rcu_read_unlock();
	return epoch;
}

/* Rates that differ between events and are easy to compute by hand. */
static u64 default_rate(u64 config)
{
	return (((config & 0xff) + 1) * 1000 + ((config >> 8) & 0xff)) * 1000;
}

/* Collects the lines that can ever apply to the event, best first. */
static void match(struct sim_event *se, const struct sim_table *table)
{
	const struct sim_rate *line;
	unsigned int i;

	se->rates_id = table->id;
	se->n_lines = 0;
	se->by_task = false;
	for (i = table->n; i-- && se->n_lines < SIM_LINES;) {
		line = (const struct sim_rate *)table->lines + i;
		if (((se->config ^ line->config) & line->mask) ||
		    !glob_match(line->pmu, se->sp->name))
			continue;
		if (line->tgid >= 0 || line->cgroup) {
			if (!se->sp->core)
				continue;
			se->by_task = true;
		}
		se->line[se->n_lines++] = i;
		if (line->cpu < 0 && line->tgid < 0 && !line->cgroup && !line->phase.period)
			break;
	}
}

static bool in_cgroup(struct task_struct *task, u64 id)
{
#ifdef CONFIG_CGROUPS
	struct cgroup *cgrp = task_dfl_cgroup(task);

	for (; cgrp; cgrp = cgroup_parent(cgrp))
		if (cgroup_id(cgrp) == id)
			return true;
#endif
	return false;
}

static bool applies(const struct sim_rate *line, struct task_struct *task, int cpu)
{
	return (line->cpu < 0 || line->cpu == cpu) &&
	       (line->tgid < 0 || line->tgid == task->tgid) &&
	       (!line->cgroup || in_cgroup(task, line->cgroup));
}

/* Sets the pace of @se for @task, which runs on @cpu or is about to. */
void sim_rates_resolve(struct sim_event *se, struct task_struct *task, int cpu)
{
	struct sim_pace *pace = &se->pace;
	const struct sim_table *table;
	const struct sim_rate *line;
	unsigned int i;

	rcu_read_lock();
	table = rcu_dereference(sim_rates_file.table);
	if (se->rates_id != table->id)
		match(se, table);
	se->task = task;
	pace->epoch = table->epoch;
	pace->rate = default_rate(se->config);
	pace->cycle = 0;
	pace->n = 0;
	for (i = 0; i < se->n_lines; i++) {
		line = (const struct sim_rate *)table->lines + se->line[i];
		if (!applies(line, task, cpu))
			continue;
		if (!line->phase.period) {
			pace->rate = line->phase.rate;
			break;
		}
		if (pace->n < SIM_PHASES) {
			pace->phase[pace->n++] = line->phase;
			pace->cycle = max(pace->cycle, line->phase.period);
		}
	}
	rcu_read_unlock();
}

/* Counts of @ns at @rate.  The part below one stays in @rest, in 1e-9 counts. */
static u64 counts_in(u64 rate, u64 ns, u64 *rest)
{
	u64 seconds, nanos, whole, part, n;

	seconds = div64_u64_rem(ns, NSEC_PER_SEC, &nanos);
	whole = div64_u64_rem(rate, NSEC_PER_SEC, &part);
	n = div64_u64_rem(nanos * part + *rest, NSEC_PER_SEC, rest);
	return rate * seconds + whole * nanos + n;
}

/* Returns the rate at @now, and for how long it stays. */
static u64 rate_at(const struct sim_pace *pace, u64 now, u64 *stays_ns)
{
	u64 since = now > pace->epoch ? now - pace->epoch : 0, at, next;
	const struct sim_phase *phase;
	unsigned int i;

	*stays_ns = pace->cycle;
	for (i = 0; i < pace->n; i++) {
		phase = &pace->phase[i];
		div64_u64_rem(since, phase->period, &at);
		if (at >= phase->from && at < phase->to) {
			*stays_ns = min(*stays_ns, phase->to - at);
			return phase->rate;
		}
		next = at < phase->from ? phase->from : phase->period + phase->from;
		*stays_ns = min(*stays_ns, next - at);
	}
	return pace->rate;
}

static u64 phased_count(const struct sim_pace *pace, u64 from, u64 to, u64 *rest)
{
	u64 rate, ns, n = 0;

	while (from < to) {
		rate = rate_at(pace, from, &ns);
		ns = min(ns, to - from);
		n += counts_in(rate, ns, rest);
		from += ns;
	}
	return n;
}

/* Returns the integral of the pace over [from, to). */
u64 sim_pace_count(const struct sim_pace *pace, u64 from, u64 to, u64 *rest)
{
	u64 cycles, each, part = 0, n = 0;

	if (!pace->n)
		return counts_in(pace->rate, to - from, rest);
	cycles = div64_u64(to - from, pace->cycle);
	if (cycles) {
		each = phased_count(pace, from, from + pace->cycle, &part);
		n = each * cycles + counts_in(part, cycles, rest);
		from += cycles * pace->cycle;
	}
	return n + phased_count(pace, from, to, rest);
}

/* Returns the time for @count at one rate, rounded up. */
static u64 time_for(u64 count, u64 rate)
{
	if (div64_u64(count, rate) >= FAR_NS / NSEC_PER_SEC)
		return FAR_NS;
	return mul_u64_u64_div_u64(count, NSEC_PER_SEC, rate) + 1;
}

/* Returns when @count more is reached, or an earlier time to check again. */
u64 sim_pace_reach(const struct sim_pace *pace, u64 from, u64 count)
{
	u64 rate, ns, n, rest = 0;
	unsigned int step;

	if (!pace->n)
		return pace->rate ? from + time_for(count, pace->rate) : SIM_NEVER;
	for (step = 0; step < REACH_STEPS; step++) {
		rate = rate_at(pace, from, &ns);
		n = counts_in(rate, ns, &rest);
		if (n >= count)
			return from + min(ns, time_for(count, rate));
		count -= n;
		from += ns;
	}
	return from;
}
