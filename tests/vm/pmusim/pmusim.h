/* SPDX-License-Identifier: GPL-2.0 */
/*
 * pmusim: simulated PMUs on the real perf core.  Shared declarations.
 *
 * Vocabulary: a *line* is one rule of a debugfs table.  The *pace* of an event
 * is the result of its lines for the running task.  A *span* is a piece of time
 * over which one pace holds.
 */
#ifndef PMUSIM_H
#define PMUSIM_H

#include <linux/perf_event.h>
#include <linux/hrtimer.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <linux/device.h>
#include "compat.h"

#define SIM_NAME_LEN	32	/* of a PMU, with the final NUL */
#define SIM_COUNTERS	64	/* bits of a counter mask */
#define SIM_DIES	8
#define SIM_LINES	64	/* rate lines that can matter to one event */
#define SIM_PHASES	8	/* lines with phase= that can matter to one event */
#define SIM_ATTRS	32	/* files of one sysfs group */
#define SIM_NEVER	U64_MAX

/* ---- tables: lists of lines, replaced as a whole, read under RCU ---- */

struct sim_table {
	u64 id;			/* never the same twice */
	u64 epoch;		/* clock at the last "clear": phases start here */
	unsigned int n;
	u64 lines[];		/* n entries of sim_file.size bytes */
};

struct sim_file {
	const char *name;
	size_t size;		/* of one entry, a multiple of 8 */
	int (*parse)(char *line, void *entry);
	void (*show)(struct seq_file *m, const void *entry);
	int (*check)(const struct sim_table *table);	/* optional: the whole */
	struct sim_table __rcu *table;
};

struct dentry;
void sim_file_add(struct sim_file *file, struct dentry *dir);
void sim_file_free(struct sim_file *file);
int sim_file_default(struct sim_file *file, const char *text);

/* ---- rates and faults: what an event counts ---- */

struct sim_phase {
	u64 period, from, to;	/* ns; no period: always */
	u64 rate;
};

struct sim_pace {
	u64 epoch;
	u64 cycle;		/* all phases repeat after this; 0: no phases */
	u64 rate;		/* outside every phase, counts per second */
	unsigned int n;
	struct sim_phase phase[SIM_PHASES];	/* the first that applies wins */
};

enum sim_fault_kind { SIM_SOUND, SIM_DEAD, SIM_WRAP32, SIM_WRAP48, SIM_STUCK };

struct sim_fault {
	enum sim_fault_kind kind;
	u64 after;		/* SIM_STUCK: counts */
};

struct sim_event;
extern struct sim_file sim_rates_file, sim_faults_file, sim_taken_file;

u64 sim_rates_epoch(void);
void sim_rates_resolve(struct sim_event *se, struct task_struct *task, int cpu);
u64 sim_pace_count(const struct sim_pace *pace, u64 from, u64 to, u64 *rest);
u64 sim_pace_reach(const struct sim_pace *pace, u64 from, u64 count);
void sim_faults_resolve(struct sim_event *se);
u64 sim_taken(const char *pmu);

/* ---- PMUs ---- */

struct sim_attr {
	struct device_attribute dev;
	const char *text;
};

#define SIM_ATTR(_name, _text) {				\
	.dev = { .attr = { .name = (_name), .mode = 0444 },	\
		 .show = sim_attr_show },			\
	.text = (_text),					\
}

struct sim_group {
	struct attribute_group group;
	struct attribute *attrs[SIM_ATTRS + 1];
};

/* Events whose code is in [first, last] may only be on these counters. */
struct sim_constraint {
	u64 mask;		/* of config, before the comparison */
	u64 first, last;
	u64 counters;
};

struct sim_box {		/* one PMU on one CPU */
	struct sim_event *owner[SIM_COUNTERS];
};

struct sim_pmu {
	struct pmu pmu;
	char name[SIM_NAME_LEN];
	bool core;
	bool unlimited;		/* free running: every event has its counter */
	u64 counters;
	const struct sim_constraint *constraints;	/* ends with no mask */
	struct sim_box __percpu *box;
	struct list_head node;
	struct sim_group sysfs[4];
	const struct attribute_group *groups[6];
	struct sim_attr die[SIM_DIES + 1];
	char die_name[SIM_DIES][8], die_text[SIM_DIES][24];
};

#define to_sim_pmu(p) container_of(p, struct sim_pmu, pmu)

ssize_t sim_attr_show(struct device *dev, struct device_attribute *attr, char *buf);
struct sim_pmu *sim_pmu_new(const char *name);
void sim_pmu_group(struct sim_pmu *sp, const char *name, struct sim_attr *attrs);
void sim_pmu_own_group(struct sim_pmu *sp, const struct attribute_group *group);
int sim_pmu_register(struct sim_pmu *sp, int type);
void sim_pmus_unregister(void);

int sim_core_register(void);
int sim_uncore_register(void);
int sim_die_cpu(int cpu);

/* ---- events ---- */

struct sim_event {
	struct perf_event *event;
	struct sim_pmu *sp;
	struct list_head node;	/* on the CPU's list while running */
	u64 config;		/* canonical: what the tables are about */
	u64 allowed;		/* counters it may be on */
	bool running;
	bool by_task;		/* its lines name tasks or cgroups */
	struct task_struct *task;	/* pace is for it; never dereferenced */
	u64 start;		/* counted up to here */
	u64 unseen;		/* counted since perf core last looked */
	u64 rest;		/* what was counted beyond whole counts, 1e-9 */
	u64 rates_id, faults_id;	/* of the tables that the rest is from */
	struct sim_fault fault;
	struct sim_pace pace;
	unsigned int n_lines;
	u16 line[SIM_LINES];	/* indices of its rate lines, best first */
};

#define to_sim_event(e) ((struct sim_event *)(e)->pmu_private)

struct sim_pmu *sim_core(int cpu);

int sim_event_new(struct perf_event *event, u64 config, u64 allowed);
void sim_event_account(struct sim_event *se, u64 now);
void sim_event_show(struct sim_event *se);
void sim_event_refresh(struct sim_event *se, struct task_struct *task, u64 now);
void sim_stop(struct perf_event *event, int flags);
void sim_pmu_callbacks(struct pmu *pmu);
bool sim_place(struct sim_event **owner, struct sim_event *se, u64 taken);
int sim_group_fits(struct perf_event *event);

/* ---- one CPU ---- */

struct sim_cpu {
	unsigned int depth;	/* > 0: the clock stands still at now */
	u64 now;
	bool frozen;		/* one of depth belongs to the switch probes */
	bool rearm;		/* timer to be set when depth returns to 0 */
	bool retry;		/* an NMI came at depth > 0 */
	struct list_head running;
	struct task_struct *prev, *next;	/* of the last switch */
	struct hrtimer timer;	/* of the next overflow */
	struct hrtimer watch;	/* nmi=2: watches the next CPU */
	u64 due;		/* nmi=2: next overflow here */
	atomic_t nmis;		/* sent and not yet seen */
	call_single_data_t csd;
};

DECLARE_PER_CPU(struct sim_cpu, sim_cpus);

u64 sim_clock(void);
bool sim_clock_manual(void);
u64 sim_now(void);
void sim_enter(void);
void sim_leave(void);
void sim_leave_quietly(void);
void sim_refresh_all(void);
void sim_clock_add(struct dentry *dir);

struct task_struct *sim_task(void);
int sim_task_init(void);
void sim_task_exit(void);

extern int sim_nmi;
extern int (*sim_overflow)(struct perf_event *event, struct perf_sample_data *data,
			   struct pt_regs *regs);
void sim_sample_prepare(void);
int sim_sample_init(void);
void sim_sample_exit(void);
void sim_sample_rearm(struct sim_cpu *sc);
void sim_sample_send(int cpu);
bool sim_sample_due(struct sim_event *se);
void sim_sample_add(struct dentry *dir);

void sim_trigger_add(struct dentry *dir);

#endif /* PMUSIM_H */
