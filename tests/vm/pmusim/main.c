// SPDX-License-Identifier: GPL-2.0
/*
 * pmusim: load and unload.  See README.md for its purpose.
 */
#include <linux/debugfs.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include "pmusim.h"

static bool core = true;
module_param(core, bool, 0444);
MODULE_PARM_DESC(core, "register the core PMU");

static bool uncore = true;
module_param(uncore, bool, 0444);
MODULE_PARM_DESC(uncore, "register the uncore PMUs");

/* Default rates of a busy core of 3 GHz: 6 slots a cycle, half of them retire. */
static const char usual_rates[] =
	"cpu* 0x3c 0xffffffff 3000000000\n"
	"cpu* 0xc0 0xffffffff 6000000000\n"
	"cpu* 0x300 0xffffffff 2000000000\n"
	"cpu* 0x13c 0xffffffff 25000000\n"
	"cpu* 0xc4 0xffffffff 1000000000\n"
	"cpu* 0xc5 0xffffffff 10000000\n"
	"cpu* 0x4f2e 0xffffffff 20000000\n"
	"cpu* 0x412e 0xffffffff 5000000\n"
	"cpu* 0x400 0xffffffff 18000000000\n"
	"cpu* 0x8000 0xffffffff 9000000000\n"
	"cpu* 0x8100 0xffffffff 1800000000\n"
	"cpu* 0x8200 0xffffffff 3600000000\n"
	"cpu* 0x8300 0xffffffff 3600000000\n"
	"cpu* 0x8400 0xffffffff 900000000\n"
	"cpu* 0x8500 0xffffffff 1500000000\n"
	"cpu* 0x8600 0xffffffff 2400000000\n"
	"cpu* 0x8700 0xffffffff 1800000000\n";

static struct dentry *dir;

/*
 * perf_event_overflow() is not exported, and nor is, since 5.7, the function
 * that finds it.  A kprobe finds that one.  Its address lies after the ENDBR,
 * if the kernel has them.
 */
static int find_overflow(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long (*lookup)(const char *name);
	unsigned long at;
	int err;

	err = register_kprobe(&probe);
	if (err)
		return err;
	at = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
	if (IS_ENABLED(CONFIG_X86_KERNEL_IBT))
		at = ALIGN_DOWN(at, 16);
	lookup = (void *)at;
	sim_overflow = (void *)lookup("perf_event_overflow");
	return sim_overflow ? 0 : -ENOENT;
}

static int tables_init(void)
{
	int err = sim_file_default(&sim_rates_file, usual_rates);

	err = err ?: sim_file_default(&sim_faults_file, "");
	return err ?: sim_file_default(&sim_taken_file, "");
}

static void tables_free(void)
{
	sim_file_free(&sim_rates_file);
	sim_file_free(&sim_faults_file);
	sim_file_free(&sim_taken_file);
}

static int pmus_register(void)
{
	int err = 0;

	if (core)
		err = sim_core_register();
	if (!err && uncore)
		err = sim_uncore_register();
	if (err)
		sim_pmus_unregister();
	return err;
}

static int __init pmusim_init(void)
{
	int err = find_overflow();

	if (err)
		return err;
	sim_sample_prepare();
	err = tables_init();
	if (err)
		goto no_tables;
	err = sim_sample_init();
	if (err)
		goto no_tables;
	err = sim_task_init();
	if (err)
		goto no_task;
	err = pmus_register();
	if (err)
		goto no_pmus;
	dir = debugfs_create_dir("pmusim", NULL);
	sim_file_add(&sim_rates_file, dir);
	sim_file_add(&sim_faults_file, dir);
	sim_file_add(&sim_taken_file, dir);
	sim_clock_add(dir);
	sim_trigger_add(dir);
	sim_sample_add(dir);
	return 0;
no_pmus:
	sim_task_exit();
no_task:
	sim_sample_exit();
no_tables:
	tables_free();
	return err;
}

static void __exit pmusim_exit(void)
{
	debugfs_remove_recursive(dir);
	sim_pmus_unregister();
	sim_task_exit();
	sim_sample_exit();
	tables_free();
}

module_init(pmusim_init);
module_exit(pmusim_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("simulated PMUs on the real perf core");
