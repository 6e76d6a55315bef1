// SPDX-License-Identifier: GPL-2.0
/*
 * Uncore PMUs as Intel's drivers show them on a Sapphire Rapids.  Boxes count
 * for a whole die, on one CPU of it, without sampling and without tasks.
 */
#include <linux/cpumask.h>
#include <linux/module.h>
#include "pmusim.h"

static unsigned int dies = 1;
module_param(dies, uint, 0444);
MODULE_PARM_DESC(dies, "dies that the CPUs are divided into, 1 to 8");

static unsigned int iio = 4, irp = 4, cha = 4, imc = 4, imc_free_running = 1, upi = 2;
module_param(iio, uint, 0444);
MODULE_PARM_DESC(iio, "uncore_iio boxes of a die; irp, cha, imc, imc_free_running, upi likewise");
module_param(irp, uint, 0444);
module_param(cha, uint, 0444);
module_param(imc, uint, 0444);
module_param(imc_free_running, uint, 0444);
module_param(upi, uint, 0444);

static bool topology = true;
module_param(topology, bool, 0444);
MODULE_PARM_DESC(topology, "dieN files of uncore_iio and uncore_upi");

struct kind {
	const char *name;
	const unsigned int *boxes;
	u64 counters;		/* 0: free running */
	const struct sim_constraint *constraints;
	struct sim_attr *format, *events;
	int (*die_text)(char *text, size_t size, int box, int die);
};

static const struct sim_constraint iio_constraints[] = {
	{ 0xff, 0x02, 0x03, 0x3 },
	{ 0xff, 0x83, 0x83, 0x3 },
	{ 0xff, 0x88, 0x88, 0xc },
	{ 0xff, 0xb7, 0xb7, 0xc },
	{ 0xff, 0xc0, 0xc0, 0xc },
	{ 0xff, 0xc5, 0xc5, 0xc },
	{ 0xff, 0xd4, 0xd5, 0xc },
	{ }
};

static const struct sim_constraint cha_constraints[] = {
	{ 0xff, 0x11, 0x11, 0x1 },
	{ 0xff, 0x36, 0x36, 0x1 },
	{ }
};

static const struct sim_constraint none[] = { { } };

static struct sim_attr plain_format[] = {
	SIM_ATTR("event", "config:0-7"),
	SIM_ATTR("umask", "config:8-15"),
	SIM_ATTR("edge", "config:18"),
	SIM_ATTR("inv", "config:23"),
	SIM_ATTR("thresh", "config:24-31"),
	{ }
};

static struct sim_attr wide_format[] = {
	SIM_ATTR("event", "config:0-7"),
	SIM_ATTR("umask", "config:8-15,32-55"),
	SIM_ATTR("edge", "config:18"),
	SIM_ATTR("inv", "config:23"),
	SIM_ATTR("thresh", "config:24-31"),
	{ }
};

static struct sim_attr cha_format[] = {
	SIM_ATTR("event", "config:0-7"),
	SIM_ATTR("umask", "config:8-15,32-55"),
	SIM_ATTR("tid_en", "config:16"),
	SIM_ATTR("edge", "config:18"),
	SIM_ATTR("inv", "config:23"),
	SIM_ATTR("thresh", "config:24-31"),
	SIM_ATTR("filter_tid", "config1:0-9"),
	{ }
};

static struct sim_attr iio_format[] = {
	SIM_ATTR("event", "config:0-7"),
	SIM_ATTR("umask", "config:8-15"),
	SIM_ATTR("edge", "config:18"),
	SIM_ATTR("inv", "config:23"),
	SIM_ATTR("thresh", "config:24-35"),
	SIM_ATTR("ch_mask", "config:36-47"),
	SIM_ATTR("fc_mask", "config:48-50"),
	{ }
};

static struct sim_attr free_running_format[] = {
	SIM_ATTR("event", "config:0-7"),
	SIM_ATTR("umask", "config:8-15"),
	{ }
};

static struct sim_attr clock_events[] = {
	SIM_ATTR("clockticks", "event=0x01,umask=0x00"),
	{ }
};

#define CACHE_LINE_IN_MIB "6.103515625e-5"

static struct sim_attr imc_events[] = {
	SIM_ATTR("clockticks", "event=0x01,umask=0x00"),
	SIM_ATTR("cas_count_read", "event=0x05,umask=0xcf"),
	SIM_ATTR("cas_count_read.scale", CACHE_LINE_IN_MIB),
	SIM_ATTR("cas_count_read.unit", "MiB"),
	SIM_ATTR("cas_count_write", "event=0x05,umask=0xf0"),
	SIM_ATTR("cas_count_write.scale", CACHE_LINE_IN_MIB),
	SIM_ATTR("cas_count_write.unit", "MiB"),
	{ }
};

static struct sim_attr free_running_events[] = {
	SIM_ATTR("dclk", "event=0xff,umask=0x10"),
	SIM_ATTR("read", "event=0xff,umask=0x20"),
	SIM_ATTR("read.scale", CACHE_LINE_IN_MIB),
	SIM_ATTR("read.unit", "MiB"),
	SIM_ATTR("write", "event=0xff,umask=0x30"),
	SIM_ATTR("write.scale", CACHE_LINE_IN_MIB),
	SIM_ATTR("write.unit", "MiB"),
	{ }
};

/* Writes the root bus of the stack: segment and bus. */
static int iio_die_text(char *text, size_t size, int box, int die)
{
	return snprintf(text, size, "0000:%02x", (die * 0x80 + (box + 1) * 0x20) & 0xff);
}

/* Writes the other end of the link. */
static int upi_die_text(char *text, size_t size, int box, int die)
{
	return snprintf(text, size, "upi_%d,die_%d", box, (die + 1) % dies);
}

static const struct kind kinds[] = {
	{ "iio", &iio, 0xf, iio_constraints, iio_format, clock_events, iio_die_text },
	{ "irp", &irp, 0x3, none, plain_format, clock_events },
	{ "cha", &cha, 0xf, cha_constraints, cha_format, clock_events },
	{ "imc", &imc, 0xf, none, wide_format, imc_events },
	{ "imc_free_running", &imc_free_running, 0, none, free_running_format,
	  free_running_events },
	{ "upi", &upi, 0xf, none, wide_format, clock_events, upi_die_text },
};

/* Returns the CPU that counts for the die of @cpu. */
int sim_die_cpu(int cpu)
{
	int size = DIV_ROUND_UP(num_possible_cpus(), dies);

	return cpu / size * size;
}

static ssize_t cpumask_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	cpumask_var_t mask;
	ssize_t n;
	int cpu;

	if (!zalloc_cpumask_var(&mask, GFP_KERNEL))
		return -ENOMEM;
	for_each_online_cpu(cpu)
		if (sim_die_cpu(cpu) == cpu)
			cpumask_set_cpu(cpu, mask);
	n = cpumap_print_to_pagebuf(true, buf, mask);
	free_cpumask_var(mask);
	return n;
}
static DEVICE_ATTR_RO(cpumask);

static struct attribute *cpumask_attrs[] = { &dev_attr_cpumask.attr, NULL };
static const struct attribute_group cpumask_group = { .attrs = cpumask_attrs };

static bool is_free_running(u64 config)
{
	return (config & 0xff) == 0xff && ((config >> 8) & 0xff) >= 0x10;
}

static int uncore_event_init(struct perf_event *event)
{
	struct sim_pmu *sp = to_sim_pmu(event->pmu);
	u64 allowed = sp->counters, config = event->attr.config;
	const struct sim_constraint *c;

	if (event->attr.type != sp->pmu.type)
		return -ENOENT;
	if (is_sampling_event(event) || event->cpu < 0)
		return -EINVAL;
	if (sp->unlimited && !is_free_running(config))
		return -EINVAL;
	event->cpu = sim_die_cpu(event->cpu);
	for (c = sp->constraints; c->mask; c++)
		if ((config & c->mask) >= c->first && (config & c->mask) <= c->last)
			allowed &= c->counters;
	return sim_event_new(event, config, allowed);
}

static void add_dies(struct sim_pmu *sp, const struct kind *kind, int box)
{
	int die;

	if (!kind->die_text || !topology)
		return;
	for (die = 0; die < dies; die++) {
		snprintf(sp->die_name[die], sizeof(sp->die_name[die]), "die%d", die);
		kind->die_text(sp->die_text[die], sizeof(sp->die_text[die]), box, die);
		sp->die[die] = (struct sim_attr)SIM_ATTR(sp->die_name[die], sp->die_text[die]);
		sysfs_attr_init(&sp->die[die].dev.attr);
	}
	sim_pmu_group(sp, NULL, sp->die);
}

static int register_box(const struct kind *kind, int box)
{
	char name[SIM_NAME_LEN];
	struct sim_pmu *sp;

	snprintf(name, sizeof(name), "uncore_%s_%d", kind->name, box);
	sp = sim_pmu_new(name);
	if (!sp)
		return -ENOMEM;
	sp->counters = kind->counters;
	sp->unlimited = !kind->counters;
	sp->constraints = kind->constraints;
	sp->pmu.task_ctx_nr = perf_invalid_context;
	sp->pmu.capabilities = PERF_PMU_CAP_NO_EXCLUDE;
	sp->pmu.event_init = uncore_event_init;
	sim_pmu_group(sp, "format", kind->format);
	sim_pmu_group(sp, "events", kind->events);
	add_dies(sp, kind, box);
	sim_pmu_own_group(sp, &cpumask_group);
	return sim_pmu_register(sp, -1);
}

int sim_uncore_register(void)
{
	int kind, box, err;

	if (dies < 1 || dies > SIM_DIES)
		return -EINVAL;
	for (kind = 0; kind < ARRAY_SIZE(kinds); kind++)
		for (box = 0; box < *kinds[kind].boxes; box++) {
			err = register_box(&kinds[kind], box);
			if (err)
				return err;
		}
	return 0;
}
