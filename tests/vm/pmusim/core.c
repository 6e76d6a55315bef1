// SPDX-License-Identifier: GPL-2.0
/*
 * Core PMU "cpu": counters, constraints and names of a Sapphire Rapids.  With
 * hybrid=1 there are two: "cpu_core", which has the same, on the first half of
 * the CPUs, and "cpu_atom", without slots, on the others.
 *
 * It takes the type PERF_TYPE_RAW, which is free where no driver found a PMU,
 * so that perf core sends it the generic events, too.  Counters have the
 * numbers of Intel's driver: general ones from 0, fixed ones from 32
 * (instructions, cycles, reference cycles, slots), metrics from 48.
 */
#include <linux/bitops.h>
#include <linux/module.h>
#include "pmusim.h"

#define FIXED(n)	BIT_ULL(32 + (n))
#define SLOTS		FIXED(3)
#define METRIC(n)	BIT_ULL(48 + (n))
#define METRICS		8
#define LOW		0xfULL		/* general counters 0 to 3 */
#define ALL		GENMASK_ULL(31, 0)

#define CONFIG_MASK	0xff8fffffULL	/* without privilege and enable bits */
#define CONFIG_SLOTS	0x0400
#define CONFIG_METRIC	0x8000

static unsigned int gp = 8;
module_param(gp, uint, 0444);
MODULE_PARM_DESC(gp, "general counters of the core PMU, 1 to 32");

static unsigned int fixed = 3;
module_param(fixed, uint, 0444);
MODULE_PARM_DESC(fixed, "fixed counters, 0 to 3: instructions, cycles, reference cycles");

static bool topdown = true;
module_param(topdown, bool, 0444);
MODULE_PARM_DESC(topdown, "slots and topdown-* events");

static bool no_interrupt;
module_param(no_interrupt, bool, 0444);
MODULE_PARM_DESC(no_interrupt, "a core PMU that cannot sample, as in many guests");

static bool hybrid;
module_param(hybrid, bool, 0444);
MODULE_PARM_DESC(hybrid, "two core PMUs: cpu_core and cpu_atom");

static unsigned int atom_gp = 6;
module_param(atom_gp, uint, 0444);
MODULE_PARM_DESC(atom_gp, "general counters of cpu_atom, 1 to 32");

static struct sim_pmu *large, *small;

/* Returns the core PMU of a CPU. */
struct sim_pmu *sim_core(int cpu)
{
	return hybrid && cpu >= DIV_ROUND_UP(num_possible_cpus(), 2) ? small : large;
}

/* The first matching constraint applies. */
static const struct sim_constraint constraints[] = {
	{ CONFIG_MASK, 0x00c0, 0x00c0, ALL | FIXED(0) },
	{ CONFIG_MASK, 0x0100, 0x0100, FIXED(0) },	/* precise distribution */
	{ CONFIG_MASK, 0x003c, 0x003c, ALL | FIXED(1) },
	{ CONFIG_MASK, 0x0300, 0x0300, FIXED(2) },
	{ CONFIG_MASK, 0x013c, 0x013c, ALL | FIXED(2) },
	{ 0xff, 0x00, 0x00, 0 },			/* no other pseudo event */
	{ }
};

/* Constraints of large cores alone, after the common ones. */
static const struct sim_constraint large_constraints[] = {
	{ 0xffff, 0x04a4, 0x04a4, BIT_ULL(0) },
	{ 0xffff, 0x08a4, 0x08a4, BIT_ULL(0) },
	{ 0xffff, 0x02cd, 0x02cd, BIT_ULL(0) },
	{ 0xff, 0xce, 0xce, BIT_ULL(0) },
	{ 0xff, 0xd0, 0xdf, LOW },
	{ 0xff, 0x2e, 0x2e, ALL },
	{ 0xff, 0x3c, 0x3c, ALL },
	{ 0xff, 0x01, 0x8f, LOW },
	{ }
};

#define NOT_COUNTED ~0ULL

static const u64 hardware[PERF_COUNT_HW_MAX] = {
	[PERF_COUNT_HW_CPU_CYCLES] = 0x003c,
	[PERF_COUNT_HW_INSTRUCTIONS] = 0x00c0,
	[PERF_COUNT_HW_CACHE_REFERENCES] = 0x4f2e,
	[PERF_COUNT_HW_CACHE_MISSES] = 0x412e,
	[PERF_COUNT_HW_BRANCH_INSTRUCTIONS] = 0x00c4,
	[PERF_COUNT_HW_BRANCH_MISSES] = 0x00c5,
	[PERF_COUNT_HW_BUS_CYCLES] = 0x013c,
	[PERF_COUNT_HW_STALLED_CYCLES_FRONTEND] = NOT_COUNTED,
	[PERF_COUNT_HW_STALLED_CYCLES_BACKEND] = NOT_COUNTED,
	[PERF_COUNT_HW_REF_CPU_CYCLES] = 0x0300,
};

#define CACHE(id, op, result)						\
	(PERF_COUNT_HW_CACHE_##id | PERF_COUNT_HW_CACHE_OP_##op << 8 |	\
	 PERF_COUNT_HW_CACHE_RESULT_##result << 16)

static const struct {
	u32 generic;
	u64 config;
} cache[] = {
	{ CACHE(L1D, READ, ACCESS), 0x81d0 },
	{ CACHE(L1D, READ, MISS), 0xe124 },
	{ CACHE(L1D, WRITE, ACCESS), 0x82d0 },
	{ CACHE(L1I, READ, MISS), 0xe424 },
	{ CACHE(LL, READ, ACCESS), 0x4f2e },
	{ CACHE(LL, READ, MISS), 0x412e },
	{ CACHE(DTLB, READ, ACCESS), 0x81d0 },
	{ CACHE(DTLB, READ, MISS), 0x0e12 },
	{ CACHE(DTLB, WRITE, ACCESS), 0x82d0 },
	{ CACHE(DTLB, WRITE, MISS), 0x0e13 },
	{ CACHE(ITLB, READ, MISS), 0x0e11 },
	{ CACHE(BPU, READ, ACCESS), 0x00c4 },
	{ CACHE(BPU, READ, MISS), 0x00c5 },
};

static int canonical(const struct perf_event_attr *attr, int type, u64 *config)
{
	int i;

	switch (attr->type) {
	case PERF_TYPE_HARDWARE:
		if (attr->config >= PERF_COUNT_HW_MAX)
			return -EINVAL;
		*config = hardware[attr->config];
		return *config == NOT_COUNTED ? -ENOENT : 0;
	case PERF_TYPE_HW_CACHE:
		for (i = 0; i < ARRAY_SIZE(cache); i++)
			if (cache[i].generic == attr->config) {
				*config = cache[i].config;
				return 0;
			}
		return -ENOENT;
	default:
		*config = attr->config & CONFIG_MASK;
		return attr->type == type ? 0 : -ENOENT;
	}
}

static bool is_metric(u64 config)
{
	return config >= CONFIG_METRIC && config < CONFIG_METRIC + (METRICS << 8) &&
	       !(config & 0xff);
}

/* Metrics come from dividing slots, so they are counted in a group led by it. */
static int check_topdown(const struct perf_event *event, u64 config)
{
	const struct perf_event *leader = event->group_leader;

	if (!is_metric(config))
		return 0;
	if (is_sampling_event((struct perf_event *)event))
		return -EINVAL;
	if (leader == event || leader->pmu != event->pmu ||
	    to_sim_event(leader)->config != CONFIG_SLOTS)
		return -EINVAL;
	return is_sampling_event((struct perf_event *)leader) ? -EINVAL : 0;
}

static const struct sim_constraint *matching(const struct sim_constraint *c, u64 config)
{
	for (; c->mask; c++)
		if ((config & c->mask) >= c->first && (config & c->mask) <= c->last)
			return c;
	return NULL;
}

static u64 allowed(const struct sim_pmu *sp, u64 config)
{
	const struct sim_constraint *c;

	if (config == CONFIG_SLOTS)
		return sp->counters & SLOTS;
	if (is_metric(config))
		return sp->counters & METRIC((config >> 8) & (METRICS - 1));
	c = matching(constraints, config);
	if (!c && sp == large)
		c = matching(large_constraints, config);
	return sp->counters & (c ? c->counters : ALL);
}

/* Pins a module that was used, where tasks keep pointing to its PMU. */
static void stay_if_needed(const struct perf_event *event)
{
	static atomic_t stays = ATOMIC_INIT(0);

	if (SIM_TASKS_KEEP_PMU && (event->attach_state & PERF_ATTACH_TASK) &&
	    !atomic_xchg(&stays, 1))
		__module_get(THIS_MODULE);
}

static int core_event_init(struct perf_event *event)
{
	struct sim_pmu *sp = to_sim_pmu(event->pmu);
	u64 config = 0;
	int err;

	if (event->cpu >= 0 && sim_core(event->cpu) != sp)
		return -ENOENT;
	err = canonical(&event->attr, event->pmu->type, &config);
	if (err)
		return err;
	if (has_branch_stack(event) || event->attr.precise_ip > 3)
		return -EOPNOTSUPP;
	err = check_topdown(event, config);
	if (err)
		return err;
	if (!allowed(sp, config))
		return -EINVAL;
	err = sim_event_new(event, config, allowed(sp, config));
	if (!err)
		stay_if_needed(event);
	return err;
}

static struct sim_attr format[] = {
	SIM_ATTR("event", "config:0-7"),
	SIM_ATTR("umask", "config:8-15"),
	SIM_ATTR("edge", "config:18"),
	SIM_ATTR("pc", "config:19"),
	SIM_ATTR("inv", "config:23"),
	SIM_ATTR("cmask", "config:24-31"),
	SIM_ATTR("frontend", "config1:0-23"),
	SIM_ATTR("offcore_rsp", "config1:0-63"),
	SIM_ATTR("ldlat", "config1:0-15"),
	{ }
};

/* The first nine only with topdown. */
static struct sim_attr events[] = {
	SIM_ATTR("slots", "event=0x00,umask=0x4"),
	SIM_ATTR("topdown-retiring", "event=0x00,umask=0x80"),
	SIM_ATTR("topdown-bad-spec", "event=0x00,umask=0x81"),
	SIM_ATTR("topdown-fe-bound", "event=0x00,umask=0x82"),
	SIM_ATTR("topdown-be-bound", "event=0x00,umask=0x83"),
	SIM_ATTR("topdown-heavy-ops", "event=0x00,umask=0x84"),
	SIM_ATTR("topdown-br-mispredict", "event=0x00,umask=0x85"),
	SIM_ATTR("topdown-fetch-lat", "event=0x00,umask=0x86"),
	SIM_ATTR("topdown-mem-bound", "event=0x00,umask=0x87"),
	SIM_ATTR("branch-instructions", "event=0xc4"),
	SIM_ATTR("branch-misses", "event=0xc5"),
	SIM_ATTR("bus-cycles", "event=0x3c,umask=0x01"),
	SIM_ATTR("cache-misses", "event=0x2e,umask=0x41"),
	SIM_ATTR("cache-references", "event=0x2e,umask=0x4f"),
	SIM_ATTR("cpu-cycles", "event=0x3c"),
	SIM_ATTR("instructions", "event=0xc0"),
	SIM_ATTR("mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
	SIM_ATTR("mem-stores", "event=0xcd,umask=0x2"),
	SIM_ATTR("ref-cycles", "event=0x00,umask=0x03"),
	{ }
};

static struct sim_attr caps[] = {
	SIM_ATTR("max_precise", "3"),
	SIM_ATTR("pmu_name", "sapphire_rapids"),
	{ }
};

/* Shows the CPUs of a PMU where cores differ. */
static ssize_t cpus_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct pmu *pmu = dev_get_drvdata(dev);
	cpumask_var_t mask;
	ssize_t n;
	int cpu;

	if (!zalloc_cpumask_var(&mask, GFP_KERNEL))
		return -ENOMEM;
	for_each_possible_cpu(cpu)
		if (sim_core(cpu) == to_sim_pmu(pmu))
			cpumask_set_cpu(cpu, mask);
	n = cpumap_print_to_pagebuf(true, buf, mask);
	free_cpumask_var(mask);
	return n;
}
static DEVICE_ATTR_RO(cpus);

static struct attribute *cpus_attrs[] = { &dev_attr_cpus.attr, NULL };
static const struct attribute_group cpus_group = { .attrs = cpus_attrs };

/* Takes the PMU, and leaves it at @at, also on failure. */
static int register_one(struct sim_pmu **at, const char *name, int type, unsigned int general,
			bool slots)
{
	struct sim_pmu *sp = sim_pmu_new(name);
	int err;

	if (!sp)
		return -ENOMEM;
	sp->core = true;
	sp->counters = GENMASK_ULL(general - 1, 0);
	if (fixed)
		sp->counters |= GENMASK_ULL(32 + fixed - 1, 32);
	if (slots)
		sp->counters |= SLOTS | GENMASK_ULL(48 + METRICS - 1, 48);
	sim_pmu_group(sp, "format", format);
	sim_pmu_group(sp, "events", slots ? events : events + METRICS + 1);
	sim_pmu_group(sp, "caps", caps);
	if (hybrid)
		sim_pmu_own_group(sp, &cpus_group);
	sp->pmu.task_ctx_nr = perf_hw_context;
	sp->pmu.event_init = core_event_init;
	sp->pmu.capabilities = hybrid ? SIM_HYBRID_CAPABILITIES : SIM_CORE_CAPABILITIES;
	if (no_interrupt)
		sp->pmu.capabilities |= PERF_PMU_CAP_NO_INTERRUPT;
	*at = sp;
	err = sim_pmu_register(sp, type);
	if (err)
		*at = NULL;
	return err;
}

int sim_core_register(void)
{
	int err;

	if (gp < 1 || gp > 32 || fixed > 3 || atom_gp < 1 || atom_gp > 32)
		return -EINVAL;
	err = register_one(&large, hybrid ? "cpu_core" : "cpu", PERF_TYPE_RAW, gp, topdown);
	if (!err && hybrid)
		err = register_one(&small, "cpu_atom", -1, atom_gp, false);
	return err;
}
