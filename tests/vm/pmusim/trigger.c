// SPDX-License-Identifier: GPL-2.0
/*
 * Triggers of masked spans: irqoff, preemptoff, bhoff and softirq.
 *
 * Writing "CPU MICROSECONDS" keeps that CPU busy for that time in that state
 * and returns when it is over.  Reading gives the last span, "CPU FROM TO", in
 * nanoseconds of CLOCK_MONOTONIC: a detector of such spans must find it.
 */
#include <linux/completion.h>
#include <linux/cpu.h>
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/timekeeping.h>
#include <linux/timer.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include "pmusim.h"

#define SPAN_MAX_US 1000000

struct trigger {
	const char *name;
	void (*mask)(struct trigger *trigger, u64 ns);	/* NULL: softirq */
	spinlock_t lock;	/* of the last span */
	int cpu;
	u64 from, to;
};

struct job {
	struct trigger *trigger;
	u64 ns;
	struct timer_list timer;
	struct completion done;
};

static void burn(struct trigger *trigger, u64 ns)
{
	u64 from = ktime_get_mono_fast_ns(), now;

	do {
		cpu_relax();
		now = ktime_get_mono_fast_ns();
	} while (now - from < ns);
	spin_lock(&trigger->lock);
	trigger->cpu = smp_processor_id();
	trigger->from = from;
	trigger->to = now;
	spin_unlock(&trigger->lock);
}

static void burn_irqoff(struct trigger *trigger, u64 ns)
{
	unsigned long flags;

	local_irq_save(flags);
	burn(trigger, ns);
	local_irq_restore(flags);
}

static void burn_preemptoff(struct trigger *trigger, u64 ns)
{
	preempt_disable();
	burn(trigger, ns);
	preempt_enable();
}

static void burn_bhoff(struct trigger *trigger, u64 ns)
{
	local_bh_disable();
	burn(trigger, ns);
	local_bh_enable();
}

static struct trigger triggers[] = {
	{ "irqoff", burn_irqoff },
	{ "preemptoff", burn_preemptoff },
	{ "bhoff", burn_bhoff },
	{ "softirq" },
};

static void on_timer(struct timer_list *timer)
{
	struct job *job = container_of(timer, struct job, timer);

	burn(job->trigger, job->ns);
	complete(&job->done);
}

static void burn_softirq(struct job *job, int cpu)
{
	init_completion(&job->done);
	timer_setup_on_stack(&job->timer, on_timer, TIMER_PINNED);
	job->timer.expires = jiffies + 1;
	add_timer_on(&job->timer, cpu);
	wait_for_completion(&job->done);
	sim_stack_timer_end(&job->timer);
}

static long on_cpu(void *arg)
{
	struct job *job = arg;

	job->trigger->mask(job->trigger, job->ns);
	return 0;
}

static ssize_t trigger_write(struct file *f, const char __user *user, size_t len, loff_t *off)
{
	struct job job = { .trigger = file_inode(f)->i_private };
	unsigned int cpu, us;
	char text[32];

	if (len >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, user, len))
		return -EFAULT;
	text[len] = 0;
	if (sscanf(text, "%u %u", &cpu, &us) != 2 || cpu >= nr_cpu_ids || us > SPAN_MAX_US)
		return -EINVAL;
	if (!cpu_online(cpu))
		return -ENODEV;
	job.ns = us * NSEC_PER_USEC;
	if (job.trigger->mask)
		work_on_cpu(cpu, on_cpu, &job);
	else
		burn_softirq(&job, cpu);
	return len;
}

static int trigger_show(struct seq_file *m, void *unused)
{
	struct trigger *trigger = m->private;
	unsigned long flags;
	u64 from, to;
	int cpu;

	spin_lock_irqsave(&trigger->lock, flags);
	cpu = trigger->cpu;
	from = trigger->from;
	to = trigger->to;
	spin_unlock_irqrestore(&trigger->lock, flags);
	if (to)
		seq_printf(m, "%d %llu %llu\n", cpu, from, to);
	return 0;
}

static int trigger_open(struct inode *inode, struct file *f)
{
	return single_open(f, trigger_show, inode->i_private);
}

static const struct file_operations trigger_fops = {
	.owner = THIS_MODULE,
	.open = trigger_open,
	.read = seq_read,
	.write = trigger_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void sim_trigger_add(struct dentry *dir)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(triggers); i++) {
		spin_lock_init(&triggers[i].lock);
		debugfs_create_file(triggers[i].name, 0600, dir, &triggers[i], &trigger_fops);
	}
}
