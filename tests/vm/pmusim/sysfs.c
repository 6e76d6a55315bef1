// SPDX-License-Identifier: GPL-2.0
/*
 * PMUs as objects: their sysfs groups, registration and end.
 *
 * The files of a group are static and shared by all boxes of a kind; only the
 * lists that name them belong to a PMU.  Nothing is left when it goes.
 */
#include <linux/slab.h>
#include <linux/string.h>
#include "pmusim.h"

static LIST_HEAD(pmus);

ssize_t sim_attr_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", container_of(attr, struct sim_attr, dev)->text);
}

struct sim_pmu *sim_pmu_new(const char *name)
{
	struct sim_pmu *sp = kzalloc(sizeof(*sp), GFP_KERNEL);

	if (!sp)
		return NULL;
	sp->box = alloc_percpu(struct sim_box);
	if (!sp->box) {
		kfree(sp);
		return NULL;
	}
	strscpy(sp->name, name, sizeof(sp->name));
	sp->pmu.module = THIS_MODULE;
	sp->pmu.attr_groups = sp->groups;
	sim_pmu_callbacks(&sp->pmu);
	return sp;
}

static int groups_of(const struct sim_pmu *sp)
{
	int count = 0;

	while (sp->groups[count])
		count++;
	return count;
}

/* Adds files that differ from PMU to PMU, or over time. */
void sim_pmu_own_group(struct sim_pmu *sp, const struct attribute_group *group)
{
	sp->groups[groups_of(sp)] = group;
}

/* Adds a folder, or, with no name, files of the PMU itself.  No text ends @attrs. */
void sim_pmu_group(struct sim_pmu *sp, const char *name, struct sim_attr *attrs)
{
	struct sim_group *group;
	int at = groups_of(sp), i;

	if (WARN_ON(at >= ARRAY_SIZE(sp->sysfs)))
		return;
	group = &sp->sysfs[at];
	for (i = 0; i < SIM_ATTRS && attrs[i].text; i++)
		group->attrs[i] = &attrs[i].dev.attr;
	group->group.name = name;
	group->group.attrs = group->attrs;
	sim_pmu_own_group(sp, &group->group);
}

static void sim_pmu_free(struct sim_pmu *sp)
{
	free_percpu(sp->box);
	kfree(sp);
}

/* Takes @sp, also where it fails. */
int sim_pmu_register(struct sim_pmu *sp, int type)
{
	int err = perf_pmu_register(&sp->pmu, sp->name, type);

	if (err) {
		pr_err("pmusim: cannot register %s: %d\n", sp->name, err);
		sim_pmu_free(sp);
		return err;
	}
	list_add(&sp->node, &pmus);
	return 0;
}

void sim_pmus_unregister(void)
{
	struct sim_pmu *sp, *next;

	list_for_each_entry_safe(sp, next, &pmus, node) {
		list_del(&sp->node);
		perf_pmu_unregister(&sp->pmu);
		sim_pmu_free(sp);
	}
}
