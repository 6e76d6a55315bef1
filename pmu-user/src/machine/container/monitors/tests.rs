//! Reading of processes named conmon, and its order.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use super::{Line, Monitor, Monitors, Question, answer, in_turns};
use crate::machine::testing::Tree;

fn monitor(user: u32, pid: u32) -> Monitor {
    Monitor { user, pid, begun: 5 }
}

/// Makes a process named conmon, of a user.
fn process(tree: &Tree, pid: u32, user: u32) {
    let at = |name: &str| format!("proc/{pid}/{name}");
    tree.write(&at("comm"), "conmon\n");
    tree.write(&at("status"), &format!("Name:\tconmon\nUid:\t{user}\t0\t0\t0\n"));
    tree.write(&at("stat"), &format!("{pid} (conmon) S {}\n", "5 ".repeat(30)));
    let bundle = format!("/storage{pid}/overlay-containers/id{pid}/userdata");
    tree.write(&at("cmdline"), &format!("conmon\0-c\0id{pid}\0-b\0{bundle}\0-n\0name{pid}\0"));
}

#[test]
fn users_take_turns_so_that_none_is_behind_all_processes_of_another() {
    let all: BTreeSet<Monitor> = (1..=50).map(|pid| monitor(1000, pid)).chain([monitor(2000, 60)]).collect();
    let order = in_turns(all.into_iter());
    assert_eq!(order[..2], [monitor(1000, 1), monitor(2000, 60)]);
}

#[test]
fn each_is_read_once_and_those_of_a_user_who_is_left_out_never() {
    let tree = Tree::new(&[("proc/9/comm", "other\n"), ("proc/self", "")]);
    (1..=3).for_each(|pid| process(&tree, pid, pid));
    let question =
        Question { read: [monitor(1, 1)].into(), users_left_out: [2].into(), ..Question::default() };
    let (mut there, mut read) = (0, Vec::new());
    answer(&tree.root, &question, &mut |line| {
        match line {
            Line::There(all) => there = all.len(),
            Line::Read(monitor, named) => read.push((monitor.pid, named.map(|named| (named.id, named.user)))),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    assert_eq!((there, read), (3, vec![(3, Some(("id3".to_owned(), 3)))]));
    assert_eq!(Monitors::new(&tree.root).look(Duration::ZERO).len(), 3);
}

#[test]
fn a_process_that_ends_before_it_is_read_is_not_taken_for_roots() {
    let tree = Tree::new(&[]);
    [1, 2, 3].into_iter().for_each(|pid| process(&tree, pid, 0));
    std::fs::remove_file(tree.root.join("proc/1/status")).unwrap();
    let mut read = Vec::new();
    answer(&tree.root, &Question::default(), &mut |line| {
        match line {
            // Its number is another user's by the time its command line is read.
            Line::Reading(Monitor { pid: 2, .. }) => process(&tree, 2, 1000),
            Line::Read(monitor, named) => read.push((monitor.pid, named.is_some())),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(read, [(2, false), (3, true)]);
}

#[test]
fn lists_of_root_are_read_at_each_look_but_those_of_users_and_those_that_do_not_answer() {
    let tree = Tree::new(&[]);
    [(1, 0), (2, 0), (3, 0), (4, 1000)].into_iter().for_each(|(pid, user)| process(&tree, pid, user));
    let list = |pid: u32| PathBuf::from(format!("/storage{pid}/overlay-containers/containers.json"));
    let question = Question {
        read: [monitor(0, 1)].into(),
        lists: [list(1)].into(),
        lists_left_out: [list(2)].into(),
        ..Question::default()
    };
    let mut read = Vec::new();
    answer(&tree.root, &question, &mut |line| {
        if let Line::ReadingList(list) = line {
            read.push(list);
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(read, [list(1), list(3)]);
}
