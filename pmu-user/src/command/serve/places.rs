//! Places of connections, shared between addresses. If all places are taken, a new connection gets one of the
//! address that has the most: that of the connection that has waited longest for a request.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::process::{Resource, getrlimit};
use tokio::task::AbortHandle;

/// Maximum number of places, if the process may have that many files.
const PLACES_MAX: usize = 512;
/// Minimum number of places, in any case.
const PLACES_MIN: usize = 16;

/// Address of a client, as far as one client has one: of IPv6 the network, and all of this host is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address(IpAddr);

impl Address {
    pub(super) fn of(from: IpAddr) -> Self {
        Self(match from.to_canonical() {
            // A user of this host may connect from each of its sixteen million addresses.
            address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            address @ IpAddr::V4(_) => address,
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }

    /// Returns the most frequent address; of equals the first.
    pub(super) fn greediest(all: impl Iterator<Item = Self>) -> Option<Self> {
        let mut counts: BTreeMap<Self, (usize, usize)> = BTreeMap::new();
        for (at, address) in all.enumerate() {
            counts.entry(address).or_insert((0, at)).0 += 1;
        }
        let most = |(_, (count, first)): &(Self, (usize, usize))| (*count, usize::MAX - first);
        counts.into_iter().max_by_key(most).map(|(address, _)| address)
    }
}

/// Stage of a connection, in the order in which connections give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The request has not come.
    Head,
    /// The password is checked.
    Password,
    /// The response is written.
    Answer,
}

/// Places of all connections.
#[derive(Debug)]
pub(super) struct Places {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// Taken places, in the order in which they were taken.
    all: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    address: Address,
    stage: Stage,
    task: Option<AbortHandle>,
}

/// Place of one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    pub(super) address: Address,
}

impl Places {
    /// Returns as many places as a quarter of the files that this process may open.
    pub(super) fn new() -> Self {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let quarter = usize::try_from(files / 4).unwrap_or(usize::MAX);
        Self { max: quarter.clamp(PLACES_MIN, PLACES_MAX), taken: Mutex::default() }
    }

    /// Returns a place for a connection from this address. Another connection may lose its own.
    pub(super) fn take(self: &Arc<Self>, from: IpAddr) -> Place {
        let address = Address::of(from);
        let mut taken = self.taken();
        while taken.all.len() >= self.max {
            taken.end_one();
        }
        let number = taken.next;
        taken.next += 1;
        taken.all.push(Entry { number, address, stage: Stage::Head, task: None });
        drop(taken);
        Place { places: Arc::clone(self), number, address }
    }

    /// Ends a connection if no file is left for another.
    pub(super) fn make_room(&self) {
        self.taken().end_one();
    }

    /// Sets the task that ends with the place.
    pub(super) fn belongs_to(&self, number: u64, task: AbortHandle) {
        match self.taken().all.iter_mut().find(|entry| entry.number == number) {
            Some(entry) => entry.task = Some(task),
            None => task.abort(),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Ends one connection of the greediest address: the one at the earliest stage, of equals the oldest.
    fn end_one(&mut self) {
        let Some(greediest) = Address::greediest(self.all.iter().map(|entry| entry.address)) else { return };
        let of_it = self.all.iter().enumerate().filter(|(_, entry)| entry.address == greediest);
        let Some((at, _)) = of_it.min_by_key(|(_, entry)| (entry.stage, entry.number)) else { return };
        if let Some(task) = self.all.remove(at).task {
            task.abort();
        }
    }
}

impl Place {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Records the stage of the connection.
    pub(super) fn is_at(&self, stage: Stage) {
        if let Some(entry) = self.places.taken().all.iter_mut().find(|entry| entry.number == self.number) {
            entry.stage = stage;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().all.retain(|entry| entry.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::{Address, Place, Places, Stage};

    fn places(max: usize) -> Arc<Places> {
        Arc::new(Places { max, taken: Mutex::default() })
    }

    fn take(places: &Arc<Places>, from: &str) -> Place {
        places.take(from.parse().unwrap())
    }

    fn has(places: &Places, place: &Place) -> bool {
        places.taken().all.iter().any(|entry| entry.number == place.number)
    }

    #[test]
    fn all_of_this_host_is_one_address_and_a_network_of_ipv6() {
        let of = |text: &str| Address::of(text.parse().unwrap());
        assert_eq!(of("127.0.0.1"), of("127.9.9.9"));
        assert_eq!(of("127.0.0.1"), of("::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn a_new_connection_takes_the_place_of_the_greediest_address() {
        let places = places(4);
        let honest = take(&places, "192.0.2.1");
        let slow: Vec<Place> = (0..3).map(|_| take(&places, "192.0.2.2")).collect();
        slow[0].is_at(Stage::Answer);
        let other = take(&places, "192.0.2.3");
        assert!(has(&places, &honest) && has(&places, &other));
        assert!(has(&places, &slow[0]), "it is answered");
        assert!(!has(&places, &slow[1]) && has(&places, &slow[2]), "the oldest without a request");
        drop(other);
        let last = take(&places, "192.0.2.2");
        assert!(has(&places, &last) && has(&places, &slow[2]), "there was room");
    }

    #[tokio::test]
    async fn the_task_of_a_place_that_is_taken_is_ended() {
        let places = places(1);
        let first = take(&places, "192.0.2.2");
        let number = first.number();
        let task = tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(first);
        });
        places.belongs_to(number, task.abort_handle());
        let second = take(&places, "192.0.2.2");
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(has(&places, &second));
    }
}
