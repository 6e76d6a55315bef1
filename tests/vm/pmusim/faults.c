// SPDX-License-Identifier: GPL-2.0
/*
 * Faults of counters: tables "faults" and "taken".
 *
 *   PMU-GLOB CONFIG MASK dead|wrap32|wrap48|stuck_after=N
 *   PMU-GLOB MASK
 *
 * A taken counter belongs to another user (firmware, a hypervisor, the NMI
 * watchdog) from the next time that events are scheduled in.
 */
#include <linux/glob.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include "pmusim.h"

struct fault_line {
	char pmu[SIM_NAME_LEN];
	u64 config, mask;
	struct sim_fault fault;
};

struct taken_line {
	char pmu[SIM_NAME_LEN];
	u64 counters;
};

static const char * const kinds[] = {
	[SIM_SOUND] = "sound",
	[SIM_DEAD] = "dead",
	[SIM_WRAP32] = "wrap32",
	[SIM_WRAP48] = "wrap48",
};

static int parse_kind(const char *word, struct sim_fault *fault)
{
	int kind;

	if (!strncmp(word, "stuck_after=", 12)) {
		fault->kind = SIM_STUCK;
		return kstrtou64(word + 12, 10, &fault->after);
	}
	kind = match_string(kinds, ARRAY_SIZE(kinds), word);
	if (kind < 0)
		return kind;
	fault->kind = kind;
	return 0;
}

static int fault_parse(char *text, void *entry)
{
	struct fault_line *line = entry;
	char kind[40];
	int used = 0;

	if (sscanf(text, "%31s %llx %llx %39s%n", line->pmu, &line->config, &line->mask, kind,
		   &used) != 4 || text[used])
		return -EINVAL;
	return parse_kind(kind, &line->fault);
}

static void fault_show(struct seq_file *m, const void *entry)
{
	const struct fault_line *line = entry;

	seq_printf(m, "%s 0x%llx 0x%llx ", line->pmu, line->config, line->mask);
	if (line->fault.kind == SIM_STUCK)
		seq_printf(m, "stuck_after=%llu\n", line->fault.after);
	else
		seq_printf(m, "%s\n", kinds[line->fault.kind]);
}

struct sim_file sim_faults_file = {
	.name = "faults",
	.size = sizeof(struct fault_line),
	.parse = fault_parse,
	.show = fault_show,
};

/* The last matching line wins.  "sound" removes a fault. */
void sim_faults_resolve(struct sim_event *se)
{
	const struct sim_table *table;
	const struct fault_line *line;
	unsigned int i;

	rcu_read_lock();
	table = rcu_dereference(sim_faults_file.table);
	if (se->faults_id == table->id)
		goto out;
	sim_event_show(se);	/* by the old one */
	se->faults_id = table->id;
	se->fault.kind = SIM_SOUND;
	for (i = table->n; i--;) {
		line = (const struct fault_line *)table->lines + i;
		if (!((se->config ^ line->config) & line->mask) &&
		    glob_match(line->pmu, se->sp->name)) {
			se->fault = line->fault;
			break;
		}
	}
out:
	rcu_read_unlock();
}

static int taken_parse(char *text, void *entry)
{
	struct taken_line *line = entry;
	int used = 0;

	if (sscanf(text, "%31s %llx%n", line->pmu, &line->counters, &used) != 2 || text[used])
		return -EINVAL;
	return 0;
}

static void taken_show(struct seq_file *m, const void *entry)
{
	const struct taken_line *line = entry;

	seq_printf(m, "%s 0x%llx\n", line->pmu, line->counters);
}

struct sim_file sim_taken_file = {
	.name = "taken",
	.size = sizeof(struct taken_line),
	.parse = taken_parse,
	.show = taken_show,
};

/* Returns the counters of @pmu that are taken. */
u64 sim_taken(const char *pmu)
{
	const struct sim_table *table;
	const struct taken_line *line;
	unsigned int i;
	u64 taken = 0;

	rcu_read_lock();
	table = rcu_dereference(sim_taken_file.table);
	for (i = 0; i < table->n; i++) {
		line = (const struct taken_line *)table->lines + i;
		if (glob_match(line->pmu, pmu))
			taken |= line->counters;
	}
	rcu_read_unlock();
	return taken;
}
