// SPDX-License-Identifier: GPL-2.0
/*
 * Assignment of events to the counters of a box, by an augmenting path in the
 * graph of events and counters.  If a placement exists, it is found, as in the
 * real drivers.
 */
#include <linux/bitops.h>
#include <linux/slab.h>
#include "pmusim.h"

/* Recurses at most once per counter, since each is visited once. */
static bool augment(struct sim_event **owner, struct sim_event *se, u64 taken, u64 *visited)
{
	u64 choice;
	int idx;

	while ((choice = se->allowed & ~taken & ~*visited)) {
		idx = __ffs64(choice);
		*visited |= BIT_ULL(idx);
		if (!owner[idx] || augment(owner, owner[idx], taken, visited)) {
			owner[idx] = se;
			return true;
		}
	}
	return false;
}

bool sim_place(struct sim_event **owner, struct sim_event *se, u64 taken)
{
	u64 visited = 0;

	return augment(owner, se, taken, &visited);
}

static bool also_fits(struct sim_event **owner, struct perf_event *event, struct pmu *pmu)
{
	return event->pmu != pmu || sim_place(owner, to_sim_event(event), 0);
}

/*
 * Returns 0 if the group of @event would fit alone.  Like the real drivers,
 * this ignores taken counters: such a group opens, and never counts.
 */
int sim_group_fits(struct perf_event *event)
{
	struct perf_event *leader = event->group_leader, *sibling;
	struct sim_event **owner;
	int err = -EINVAL;

	if (leader == event || to_sim_pmu(event->pmu)->unlimited)
		return 0;
	owner = kcalloc(SIM_COUNTERS, sizeof(*owner), GFP_KERNEL);
	if (!owner)
		return -ENOMEM;
	if (!also_fits(owner, leader, event->pmu))
		goto out;
	for_each_sibling_event(sibling, leader)
		if (sibling != event && !also_fits(owner, sibling, event->pmu))
			goto out;
	if (also_fits(owner, event, event->pmu))
		err = 0;
out:
	kfree(owner);
	return err;
}
