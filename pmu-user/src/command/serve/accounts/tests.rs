//! Tests with files of cgroups in a folder, and their growing figures.

use std::{fs, sync::Arc};

use super::{Accountable, Accounts};
use crate::{
    machine::{
        accounting::Figure::{Memory, Periods},
        cgroup::Layout,
        testing::Tree,
    },
    untrusted::Untrusted,
};

/// Cgroups in a folder, with ids that grow as the kernel's do.
struct World {
    tree: Tree,
    accounts: Accounts,
}

impl World {
    fn new() -> Self {
        let tree = Tree::new(&[("v2/cgroup.controllers", "cpu memory\n")]);
        let layout = Layout { v2: Some(tree.root.join("v2")), ..Layout::default() };
        let accounts = Accounts::new(layout, &tree.root);
        Self { tree, accounts }
    }

    fn write(&self, path: &str, periods: u64, bytes: u64) {
        let folder = self.tree.root.join("v2").join(path);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cpu.stat"), format!("nr_periods {periods}\n")).unwrap();
        fs::write(folder.join("memory.current"), format!("{bytes}\n")).unwrap();
    }

    /// Returns the growth of a target's periods, and its memory, if they are read.
    fn read(&mut self, paths: &[&str], is_counted: bool) -> Option<(u64, Vec<u64>)> {
        let targets = vec![target("web", paths, is_counted)];
        let account = self.accounts.read(targets).pop()?;
        let of =
            |figure| account.figures.iter().filter(move |(of, _)| *of == figure).map(|(_, value)| *value);
        Some((of(Periods).sum(), of(Memory).collect()))
    }
}

fn target(name: &str, paths: &[&str], is_counted: bool) -> Accountable {
    let paths = paths.iter().map(|path| Untrusted::from(*path)).collect();
    Accountable { target: name.into(), info: Arc::default(), paths, is_counted }
}

#[test]
fn what_a_cgroup_did_before_is_none_of_it_and_what_it_does_is_counted_once() {
    let mut world = World::new();
    world.write("web", 100, 4096);
    world.accounts.newest.0 = u64::MAX;
    assert_eq!(world.read(&["/web"], true), Some((0, vec![4096])));
    world.write("web", 130, 8192);
    assert_eq!(world.read(&["/web"], true), Some((30, vec![8192])));
    assert_eq!(world.read(&["/web"], true), Some((0, vec![8192])));
    assert_eq!(world.read(&["/none"], true), None, "nothing of one that is not there");
}

#[test]
fn what_was_made_while_counting_goes_on_is_counted_from_its_beginning() {
    let mut world = World::new();
    world.write("web", 100, 4096);
    world.accounts.newest.0 = 0;
    assert_eq!(world.read(&["/web"], true), Some((100, vec![4096])));
}

#[test]
fn until_a_scrape_has_seen_its_0_what_grows_waits() {
    let mut world = World::new();
    world.write("web", 100, 4096);
    world.accounts.newest.0 = u64::MAX;
    assert_eq!(world.read(&["/web"], false), Some((0, vec![4096])));
    world.write("web", 120, 4096);
    assert_eq!(world.read(&["/web"], false), Some((0, vec![4096])));
    assert_eq!(world.read(&["/web"], true), Some((20, vec![4096])));
}

#[test]
fn a_table_has_what_grows_when_it_grows_though_no_scrape_comes() {
    let mut world = World::new();
    world.write("web", 100, 4096);
    world.accounts.newest.0 = u64::MAX;
    let mut of_interval = |is_counted| -> u64 {
        let account = world.accounts.read(vec![target("web", &["/web"], is_counted)]).pop().unwrap();
        world.write("web", 120, 4096);
        account.of_interval.iter().filter(|(of, _)| *of == Periods).map(|(_, value)| *value).sum()
    };
    assert_eq!([of_interval(false), of_interval(false), of_interval(true)], [0, 20, 0]);
}

#[test]
fn two_cgroups_of_one_target_add_up_and_files_of_those_that_go_are_closed() {
    let mut world = World::new();
    world.accounts.newest.0 = 0;
    world.write("a", 10, 1000);
    world.write("b", 20, 2000);
    assert_eq!(world.read(&["/a", "/b"], true), Some((30, vec![1000, 2000])));
    assert_eq!(world.accounts.open.len(), 2);
    assert_eq!(world.read(&["/b"], true), Some((0, vec![2000])));
    assert_eq!(world.accounts.open.len(), 1);
}

#[test]
fn files_have_a_bound_and_what_it_leaves_out_is_counted() {
    let mut world = World::new();
    ["a", "b", "c"].iter().for_each(|path| world.write(path, 1, 1));
    let all = || ["a", "b", "c"].map(|name| target(name, &[&format!("/{name}")], true));
    let of = |world: &mut World, targets: Vec<_>| -> Vec<String> {
        world.accounts.read(targets).iter().map(|account| account.target.to_string()).collect()
    };
    // Each has two files, and room is kept for all that there may be.
    world.accounts.files_max = world.accounts.accounting.files_max() + 2;
    assert_eq!(of(&mut world, all().to_vec()), ["a", "b"]);
    assert_eq!(world.accounts.left_out(), 1);
    let mut reversed = all().to_vec();
    reversed.reverse();
    assert_eq!(of(&mut world, reversed), ["b", "a"], "those that are open stay");
    let [a, ..] = all();
    assert_eq!(of(&mut world, vec![a]), ["a"]);
    assert_eq!(world.accounts.left_out(), 0);
}
