//! Tests of which checks wait, which are refused, and what is remembered.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot::Receiver;

use super::{Credentials, KNOWN_FOR, Passwords, WAITING_MAX};
use crate::command::serve::places::Address;

fn address(text: &str) -> Address {
    Address::of(text.parse().unwrap())
}

fn credentials(user: Option<&str>, password: &str) -> Credentials {
    // Hash of `secret`, at the lowest cost.
    let hash = "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
    Credentials { user: user.map(str::to_owned), password: password.to_owned(), hash: hash.to_owned() }
}

/// Returns a queue of checks that no thread takes.
fn waiting() -> Arc<Passwords> {
    let passwords = Arc::new(Passwords::new().unwrap());
    passwords.state().has_begun = true;
    passwords
}

fn enqueue(passwords: &Arc<Passwords>, from: &str, password: &str) -> Receiver<bool> {
    passwords.enqueue(address(from), credentials(Some("alice"), password)).unwrap()
}

/// Returns the password that is checked next.
fn next(passwords: &Passwords) -> Option<String> {
    passwords.state().take().map(|one| one.credentials.password)
}

#[test]
fn what_was_right_is_remembered_for_an_hour_after_its_last_use_and_for_that_hash_alone() {
    let passwords = waiting();
    let (right, begun) = (credentials(Some("alice"), "secret"), Instant::now());
    assert!(right.are_right(), "the fixture");
    let knows = |credentials: &Credentials, at| passwords.state().knows(&passwords.salt, credentials, at);
    assert!(!knows(&right, begun));
    passwords.state().remember(&passwords.salt, &right, begun);
    assert!(knows(&right, begun + KNOWN_FOR / 2) && knows(&right, begun + KNOWN_FOR));
    assert!(!knows(&credentials(Some("alice"), "Secret"), begun));
    assert!(
        !knows(&credentials(Some("bob"), "secret"), begun) && !knows(&credentials(None, "secret"), begun)
    );
    let changed = Credentials { hash: right.hash.replace("abcd", "abce"), ..right.clone() };
    assert!(!knows(&changed, begun), "the password was changed");
    assert!(!knows(&right, begun + KNOWN_FOR * 3));
}

#[test]
fn the_oldest_of_the_greediest_address_is_refused_and_addresses_take_turns() {
    let passwords = waiting();
    let honest = enqueue(&passwords, "192.0.2.1", "honest");
    let mut flood: Vec<Receiver<bool>> =
        (0..200).map(|number| enqueue(&passwords, "192.0.2.2", &number.to_string())).collect();
    assert_eq!(passwords.state().waiting.len(), WAITING_MAX);
    assert!(flood[0].try_recv().is_err() && flood[0].is_terminated(), "refused");
    assert!(!honest.is_terminated() && !flood[199].is_terminated());
    let order = [next(&passwords), next(&passwords), next(&passwords)].map(Option::unwrap);
    assert!(order[..2].contains(&"honest".to_owned()), "{order:?}");
    assert!(order[..2].contains(&"199".to_owned()) && order[2] == "198", "{order:?}");
    // A client that has gone is not checked.
    drop(flood);
    assert_eq!(next(&passwords), None);
}

#[tokio::test]
async fn a_password_is_checked_on_a_thread_of_its_own() {
    let passwords = Arc::new(Passwords::new().unwrap());
    let check = |user, password| passwords.check(address("::1"), credentials(user, password));
    assert_eq!(check(Some("alice"), "wrong").await, super::Checked::Wrong);
    assert_eq!(check(None, "secret").await, super::Checked::Wrong, "the hash is another user's");
    assert_eq!(check(Some("alice"), "secret").await, super::Checked::Right);
    assert_eq!(check(Some("alice"), "secret").await, super::Checked::Right);
    assert!(passwords.state().known["alice"].1.elapsed() < Duration::from_mins(1));
}
