//! Push of sampled stacks to a collector, by OTLP profiles over HTTP. A profile covers the samples since the
//! one before, so profiles that a collector does not take wait. Of too many, the oldest is dropped, and
//! counted.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use hyper::Uri;
use tokio::{sync::Notify, time};

use super::push::{self, Failure, Trouble};
use crate::{command::pipeline::Pipeline, drain::Header, machine::duration_ns, view::export};

/// Path where collectors take profiles as long as they are in development (opentelemetry-proto,
/// collector/profiles/v1development).
const PATH: &str = "/v1development/profiles";
/// Maximum number of waiting profiles.
const WAITING_MAX: usize = 4;
/// Delay of a retry after a failure.
const AGAIN: Duration = Duration::from_secs(5);
/// Time limit of the last push once counting is over.
const PATIENCE: Duration = Duration::from_secs(2);

/// Arguments for pushing profiles.
#[derive(Debug, clap::Args)]
pub(super) struct ProfilesArgs {
    /// Also push sampled stacks to an OpenTelemetry collector, by OTLP profiles (in development):
    /// http://HOST:PORT, with or without a path
    #[arg(long, value_name = "URL", value_parser = url, help_heading = "Server")]
    otlp_profiles: Option<Uri>,
    /// Sample N times per second on each CPU for --otlp-profiles
    #[arg(long, value_name = "N", default_value_t = 19, requires = "otlp_profiles", help_heading = "Server",
          value_parser = clap::value_parser!(u32).range(1..))]
    profile_frequency: u32,
}

fn url(text: &str) -> Result<Uri, String> {
    push::url(text, PATH)
}

impl ProfilesArgs {
    /// Returns the sampling frequency; `None` to take no samples.
    pub(super) fn frequency(&self) -> Option<u32> {
        self.otlp_profiles.is_some().then_some(self.profile_frequency)
    }

    /// Returns profiles of this length, and their destination; `None` if none are wanted.
    pub(super) fn begin(&self, every: Duration) -> Option<(Profiles, Uri)> {
        let profiles = Profiles { every_ns: duration_ns(every), begun_ns: 0, waiting: Arc::default() };
        Some((profiles, self.otlp_profiles.clone()?))
    }
}

/// Sampled stacks on their way to the push task.
pub(super) struct Profiles {
    every_ns: u64,
    /// Start of the profile that is due next, in ns since counting began.
    begun_ns: u64,
    waiting: Arc<Waiting>,
}

impl Profiles {
    /// Returns the waiting profiles.
    pub(super) fn waiting(&self) -> Arc<Waiting> {
        Arc::clone(&self.waiting)
    }

    /// Makes a profile if one is due, after the pipeline has taken a drain that ended at `at_ns` (ns since
    /// counting began).
    pub(super) fn drained(&mut self, header: &Header, pipeline: &mut Pipeline<'_>, at_ns: u64) {
        // A tick may come a little early.
        if at_ns.saturating_sub(self.begun_ns) + duration_ns(Duration::from_millis(50)) >= self.every_ns {
            self.begun_ns = at_ns;
            self.take(header, pipeline);
        }
    }

    fn take(&self, header: &Header, pipeline: &mut Pipeline<'_>) {
        if let Some(profile) = export::profiles(header, &pipeline.take_tasks()) {
            self.waiting.add(profile.into());
        }
    }

    /// Ends the profiles: the rest is pushed if a collector takes it soon.
    pub(super) fn end(&self, header: &Header, pipeline: &mut Pipeline<'_>) {
        self.take(header, pipeline);
        let until = Instant::now() + PATIENCE;
        while self.waiting.first().is_some() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Profiles that wait to be pushed, by their number.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    profiles: Mutex<VecDeque<(u64, Bytes)>>,
    told: Notify,
    made: AtomicU64,
    pushed: AtomicU64,
    lost: AtomicU64,
}

impl Waiting {
    /// Returns the numbers of pushed and of lost profiles.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.pushed.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }

    fn add(&self, profile: Bytes) {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.push_back((number, profile));
        if profiles.len() > WAITING_MAX {
            profiles.pop_front();
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        drop(profiles);
        self.told.notify_one();
    }

    fn first(&self) -> Option<(u64, Bytes)> {
        self.profiles.lock().unwrap_or_else(PoisonError::into_inner).front().cloned()
    }

    /// Removes the profile with this number, if it was not lost in between, and counts it in `as_what`.
    fn done(&self, number: u64, as_what: &AtomicU64) {
        let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        if profiles.front().is_some_and(|(first, _)| *first == number) {
            profiles.pop_front();
            as_what.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Pushes waiting profiles until the process ends.
pub(super) async fn push(to: Uri, waiting: Arc<Waiting>) {
    let mut trouble = Trouble::default();
    loop {
        let Some((number, profile)) = waiting.first() else {
            waiting.told.notified().await;
            continue;
        };
        let result = push::post(&to, PATH, &profile).await;
        trouble.tell(&to, result.as_ref().err());
        match result {
            Ok(()) => waiting.done(number, &waiting.pushed),
            Err(Failure::Refused(_)) => waiting.done(number, &waiting.lost),
            Err(Failure::Unreachable(_)) => time::sleep(AGAIN).await,
        }
    }
}
