// SPDX-License-Identifier: GPL-2.0
/*
 * Tables of lines behind debugfs files: "rates", "faults" and "taken".
 *
 * Reading returns the lines in the format for writing.  Writing appends, and
 * "clear" removes all lines before it.  One write is one change.  If any of its
 * lines is wrong, nothing changes.  Else everything that runs is accounted up
 * to that moment by the old table and from then on by the new one.
 */
#include <linux/debugfs.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include "pmusim.h"

#define TEXT_MAX (256 * 1024)
#define TABLE_MAX 4096		/* lines; sim_event.line holds indices */

static DEFINE_MUTEX(table_mutex);
static u64 last_id;

static void *entry(const struct sim_file *file, const struct sim_table *table, unsigned int i)
{
	return (char *)table->lines + i * file->size;
}

static unsigned int count_lines(const char *text)
{
	unsigned int n = 1;

	while ((text = strchr(text, '\n'))) {
		text++;
		n++;
	}
	return n;
}

static int parse(struct sim_file *file, struct sim_table *table, char *text)
{
	char *line;
	int err;

	while ((line = strsep(&text, "\n"))) {
		line = strim(line);
		if (!*line || *line == '#')
			continue;
		if (!strcmp(line, "clear")) {
			table->n = 0;
			table->epoch = sim_clock();
			continue;
		}
		if (table->n == TABLE_MAX)
			return -ENOSPC;
		memset(entry(file, table, table->n), 0, file->size);
		err = file->parse(line, entry(file, table, table->n));
		if (err)
			return err;
		table->n++;
	}
	return file->check ? file->check(table) : 0;
}

static int append(struct sim_file *file, char *text)
{
	struct sim_table *old, *new;
	unsigned int had;
	int err;

	mutex_lock(&table_mutex);
	old = rcu_dereference_protected(file->table, lockdep_is_held(&table_mutex));
	had = old ? old->n : 0;
	new = kvzalloc(sizeof(*new) + (had + count_lines(text)) * file->size, GFP_KERNEL);
	err = -ENOMEM;
	if (!new)
		goto out;
	new->id = ++last_id;
	new->epoch = old ? old->epoch : sim_clock();
	new->n = had;
	if (old)
		memcpy(new->lines, old->lines, had * file->size);
	err = parse(file, new, text);
	if (err) {
		kvfree(new);
		goto out;
	}
	rcu_assign_pointer(file->table, new);
	sim_refresh_all();
	synchronize_rcu();
	kvfree(old);
out:
	mutex_unlock(&table_mutex);
	return err;
}

int sim_file_default(struct sim_file *file, const char *text)
{
	char *copy = kstrdup(text, GFP_KERNEL);
	int err;

	if (!copy)
		return -ENOMEM;
	err = append(file, copy);
	kfree(copy);
	return err;
}

static ssize_t table_write(struct file *f, const char __user *user, size_t len, loff_t *off)
{
	struct sim_file *file = file_inode(f)->i_private;
	char *text;
	int err;

	if (len > TEXT_MAX)
		return -E2BIG;
	text = memdup_user_nul(user, len);
	if (IS_ERR(text))
		return PTR_ERR(text);
	err = append(file, text);
	kfree(text);
	return err ?: len;
}

static int table_show(struct seq_file *m, void *unused)
{
	struct sim_file *file = m->private;
	struct sim_table *table;
	unsigned int i;

	mutex_lock(&table_mutex);
	table = rcu_dereference_protected(file->table, lockdep_is_held(&table_mutex));
	for (i = 0; table && i < table->n; i++)
		file->show(m, entry(file, table, i));
	mutex_unlock(&table_mutex);
	return 0;
}

static int table_open(struct inode *inode, struct file *f)
{
	return single_open(f, table_show, inode->i_private);
}

static const struct file_operations table_fops = {
	.owner = THIS_MODULE,
	.open = table_open,
	.read = seq_read,
	.write = table_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void sim_file_add(struct sim_file *file, struct dentry *dir)
{
	debugfs_create_file(file->name, 0600, dir, file, &table_fops);
}

/* Frees the table when no event is left and the file is gone. */
void sim_file_free(struct sim_file *file)
{
	kvfree(rcu_dereference_protected(file->table, true));
	RCU_INIT_POINTER(file->table, NULL);
}
