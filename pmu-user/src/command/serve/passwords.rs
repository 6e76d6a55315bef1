//! Password checks. bcrypt takes a tenth of a second on purpose, so it runs on a separate thread. A bounded
//! number of requests wait for it, and addresses take turns. Correct passwords are remembered for a while: a
//! scrape that was admitted before does not wait.

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

/// SHA-256 of a secret.
pub(super) type Hash = [u8; 32];

/// Maximum number of waiting checks, those of all addresses together.
const WAITING_MAX: usize = 64;
/// Time that a correct password is remembered after its last use.
const KNOWN_FOR: Duration = Duration::from_hours(1);

/// Password, and the hash to check it against.
#[derive(Clone)]
pub(super) struct Credentials {
    /// User, if there is one with the given name.
    pub(super) user: Option<String>,
    pub(super) password: String,
    /// bcrypt hash: of the user, or of another one if the name is unknown.
    pub(super) hash: String,
}

impl Credentials {
    /// Returns whether it is the password of a user. Takes as long as the hash requires.
    pub(super) fn are_right(&self) -> bool {
        let is_right = bcrypt::verify(&self.password, &self.hash).unwrap_or(false);
        is_right && self.user.is_some()
    }
}

// A password appears in no message.
impl Debug for Credentials {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    Right,
    Wrong,
    /// Not checked: too many wait, most of them from this address.
    Refused,
}

/// Checks of passwords, one after the other.
#[derive(Debug)]
pub(super) struct Passwords {
    /// Salt of this process, so that what is remembered can be compared with nothing else.
    salt: Hash,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Waiting checks, in the order in which they came.
    waiting: Vec<Waiting>,
    /// Hashes of correct passwords, by user, and when each was last used.
    known: BTreeMap<String, (Hash, Instant)>,
    /// Addresses with a waiting check, and the last one checked, with the number of their last check.
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
    /// Returns a queue without remembered passwords.
    ///
    /// # Errors
    ///
    /// The kernel provides no random numbers.
    pub(super) fn new() -> io::Result<Self> {
        let mut salt = Hash::default();
        File::open("/dev/urandom")?.read_exact(&mut salt)?;
        Ok(Self { salt, state: Mutex::default(), arrived: Condvar::new() })
    }

    /// Checks a password: at once if it is remembered, else when it is this address's turn.
    pub(super) async fn check(self: &Arc<Self>, from: Address, credentials: Credentials) -> Checked {
        let Some(answer) = self.enqueue(from, credentials) else { return Checked::Right };
        match answer.await {
            Ok(true) => Checked::Right,
            Ok(false) => Checked::Wrong,
            Err(_) => Checked::Refused,
        }
    }

    /// Queues a check, and returns the receiver of its result; `None` if the password is known to be correct.
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

    /// Checks passwords until the process ends.
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

    /// Refuses checks beyond the limit: the oldest of the address with the most.
    fn bound(&mut self) {
        self.waiting.retain(|one| !one.answer.is_closed());
        while self.waiting.len() > WAITING_MAX {
            let Some(greediest) = Address::greediest(self.waiting.iter().map(|one| one.from)) else { return };
            if let Some(oldest) = self.waiting.iter().position(|one| one.from == greediest) {
                self.waiting.remove(oldest);
            }
        }
    }

    /// Returns the next check: the newest of the address with the least recent turn. Older ones have waited
    /// so long that their clients may give up.
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

/// Returns what is remembered of a password. Without this process's salt, no password can be guessed by it.
fn digest(salt: &Hash, credentials: &Credentials) -> Hash {
    let hash = credentials.hash.as_bytes();
    sha256(&[salt.as_slice(), &sha256(hash), credentials.password.as_bytes()].concat())
}

pub(super) fn sha256(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}
