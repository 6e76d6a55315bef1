//! Checks passwords. bcrypt takes a tenth of a second on purpose, so it runs on a thread of its own, a bounded number of requests wait for
//! it, addresses in turn, and what was right is remembered for a while: a scrape that was admitted before waits for no other.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt::{self, Debug, Formatter},
    fs::File,
    io::{self, Read as _},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::Builder,
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;

use super::places::Address;

/// What is known of a secret: SHA-256 of it.
pub(super) type Hash = [u8; 32];

/// Checks that wait at a time, those of all addresses together.
const WAITING_MAX: usize = 64;
/// For how long a password that was right is remembered after it was last used.
const KNOWN_FOR: Duration = Duration::from_hours(1);

/// A password, and what it is checked by.
#[derive(Clone)]
pub(super) struct Credentials {
    /// The user, where there is one of the name that was given.
    pub(super) user: Option<String>,
    pub(super) password: String,
    /// bcrypt's hash: of the user, or of another where there is none of the name.
    pub(super) hash: String,
}

impl Credentials {
    /// Is it the password of a user? Takes as long as the hash wants.
    pub(super) fn are_right(&self) -> bool {
        let is_right = bcrypt::verify(&self.password, &self.hash).unwrap_or(false);
        is_right && self.user.is_some()
    }
}

// A password is in no message.
impl Debug for Credentials {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    Right,
    Wrong,
    /// Not checked: too many wait, most of them of this address.
    Refused,
}

/// Checks, one after the other.
#[derive(Debug)]
pub(super) struct Passwords {
    /// Of this process, so that what is remembered can be compared with nothing else.
    salt: Hash,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    /// What was right, by user, and when it was last used.
    known: BTreeMap<String, (Hash, Instant)>,
    /// Addresses of those that wait or waited last, with the number of the check that was theirs.
    turns: BTreeMap<Address, u64>,
    checks: u64,
    has_begun: bool,
}

#[derive(Debug)]
struct Waiting {
    from: Address,
    credentials: Credentials,
    answer: oneshot::Sender<bool>,
}

impl Passwords {
    /// Nothing is remembered yet.
    ///
    /// # Errors
    ///
    /// The kernel has no random numbers to give.
    pub(super) fn new() -> io::Result<Self> {
        let mut salt = Hash::default();
        File::open("/dev/urandom")?.read_exact(&mut salt)?;
        Ok(Self { salt, state: Mutex::default(), arrived: Condvar::new() })
    }

    /// Checks a password: at once where it is remembered, else when it is this address's turn.
    pub(super) async fn check(self: &Arc<Self>, from: Address, credentials: Credentials) -> Checked {
        let Some(answer) = self.enqueue(from, credentials) else { return Checked::Right };
        match answer.await {
            Ok(true) => Checked::Right,
            Ok(false) => Checked::Wrong,
            Err(_) => Checked::Refused,
        }
    }

    /// Where the answer will be, or nothing where the password is known to be right.
    fn enqueue(self: &Arc<Self>, from: Address, credentials: Credentials) -> Option<oneshot::Receiver<bool>> {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.knows(&self.salt, &credentials, Instant::now()) {
            return None;
        }
        state.waiting.push(Waiting { from, credentials, answer });
        state.bound();
        if !state.has_begun {
            let passwords = Arc::clone(self);
            let begun = Builder::new().name("http-passwords".to_owned()).spawn(move || passwords.work());
            state.has_begun = begun.is_ok();
            if begun.is_err() {
                state.waiting.clear();
            }
        }
        drop(state);
        self.arrived.notify_one();
        Some(receiver)
    }

    /// Checks until the process ends.
    fn work(&self) {
        loop {
            let one = self.next();
            let is_right = one.credentials.are_right();
            if is_right {
                self.state().remember(&self.salt, &one.credentials, Instant::now());
            }
            // The client may have gone.
            let _ = one.answer.send(is_right);
        }
    }

    fn next(&self) -> Waiting {
        let mut state = self.state();
        loop {
            if let Some(one) = state.take() {
                return one;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn knows(&mut self, salt: &Hash, credentials: &Credentials, now: Instant) -> bool {
        let Some(user) = &credentials.user else { return false };
        match self.known.get_mut(user) {
            Some((known, used)) if *known == digest(salt, credentials) && now - *used < KNOWN_FOR => {
                *used = now;
                true
            }
            _ => false,
        }
    }

    fn remember(&mut self, salt: &Hash, credentials: &Credentials, now: Instant) {
        self.known.retain(|_, (_, used)| now - *used < KNOWN_FOR);
        if let Some(user) = &credentials.user {
            self.known.insert(user.clone(), (digest(salt, credentials), now));
        }
    }

    /// Of more than can wait the oldest of the address with the most is refused.
    fn bound(&mut self) {
        self.waiting.retain(|one| !one.answer.is_closed());
        while self.waiting.len() > WAITING_MAX {
            let Some(greediest) = Address::greediest(self.waiting.iter().map(|one| one.from)) else { return };
            if let Some(oldest) = self.waiting.iter().position(|one| one.from == greediest) {
                self.waiting.remove(oldest);
            }
        }
    }

    /// The next one to check: of the address whose turn was longest ago, the one that came last, as those before it have waited so long
    /// that their clients may give up.
    fn take(&mut self) -> Option<Waiting> {
        self.waiting.retain(|one| !one.answer.is_closed());
        let turns = &self.turns;
        let next = self.waiting.iter().map(|one| one.from).min_by_key(|from| turns.get(from).copied())?;
        let at = self.waiting.iter().rposition(|one| one.from == next)?;
        self.checks += 1;
        let waiting = &self.waiting;
        self.turns.retain(|address, _| waiting.iter().any(|one| one.from == *address));
        self.turns.insert(next, self.checks);
        Some(self.waiting.remove(at))
    }
}

/// What is remembered of a password: nothing that a password could be guessed by without this process's salt.
fn digest(salt: &Hash, credentials: &Credentials) -> Hash {
    let hash = credentials.hash.as_bytes();
    sha256(&[salt.as_slice(), &sha256(hash), credentials.password.as_bytes()].concat())
}

pub(super) fn sha256(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}
