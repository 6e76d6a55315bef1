//! Latencies in HdrHistogram's interval log format, with a line for each owner and interval. That project's
//! tools merge, plot and compare such logs.

use std::{
    io::{self, Write},
    time::{Duration, UNIX_EPOCH},
};

use hdrhistogram::{
    Histogram,
    serialization::{
        V2DeflateSerializer,
        interval_log::{IntervalLogWriterBuilder, Tag},
    },
};

use super::words;
use crate::{
    drain::{Id, Owner},
    metric::{
        io::Subject,
        number::{Attribution, Content, Number},
        value::Distribution,
    },
    untrusted::Untrusted,
};

/// Significant digits, with which a power of two has 128 cells. A bucket has four of them or more, or is one
/// value. Its middle is therefore the largest value of a cell, which is what a percentile is read as.
const DIGITS: u8 = 2;

/// Writer of the log to one place. A failure is kept until the end, and ends only the log.
pub struct HdrLog<'a> {
    into: Box<dyn Write + 'a>,
    serializer: V2DeflateSerializer,
    failure: Option<io::Error>,
}

impl<'a> HdrLog<'a> {
    /// Begins the log of a run that started at `started_unix_ns`, in ns since 1970.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn begin(mut into: Box<dyn Write + 'a>, started_unix_ns: u64) -> io::Result<Self> {
        let mut serializer = V2DeflateSerializer::new();
        let started = UNIX_EPOCH + Duration::from_nanos(started_unix_ns);
        IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .add_comment("[Values in ns; tags are METRIC:KIND:OWNER, with :disk:NAME:OPERATION before it where it is a disk's; other bytes than letters, digits and -._/ as %XX]")
            .with_start_time(started)
            .with_base_time(started)
            .begin_log_with(&mut into, &mut serializer)?;
        into.flush()?;
        Ok(Self { into, serializer, failure: None })
    }

    /// Appends the distributions among the numbers of an interval. `frame` is its start and length in ns.
    pub fn interval<'r>(&mut self, frame: (u64, u64), numbers: impl Iterator<Item = Number<'r>>) {
        if self.failure.is_none() {
            self.failure = self.lines(frame, numbers).err();
        }
    }

    fn lines<'r>(
        &mut self,
        (from, length): (u64, u64),
        numbers: impl Iterator<Item = Number<'r>>,
    ) -> io::Result<()> {
        let mut log = IntervalLogWriterBuilder::new().begin_log_with(&mut self.into, &mut self.serializer)?;
        let [from, length] = [from, length].map(Duration::from_nanos);
        for number in numbers {
            let Content::Distribution(Ok(found)) = number.content else { continue };
            let tag = tag(&number);
            log.write_histogram(&to_hdr(found)?, from, length, Tag::new(&tag)).map_err(io::Error::other)?;
        }
        self.into.flush()
    }

    /// Returns the first failure.
    ///
    /// # Errors
    ///
    /// The stream could not be written.
    pub fn end(self) -> io::Result<()> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot write the log of latencies: {error}"))
        };
        self.failure.map_or(Ok(()), |error| Err(named(error)))
    }
}

/// Returns the same values as HdrHistogram keeps them, each at the middle of its bucket but no higher than
/// the largest.
fn to_hdr(distribution: &Distribution) -> io::Result<Histogram<u64>> {
    let values = || {
        let value = |middle: u64| middle.min(distribution.max.high);
        distribution.histogram.iter().map(move |(bucket, count)| (value(bucket.middle()), count))
    };
    let most = values().map(|(value, _)| value).max().unwrap_or(0);
    let mut histogram = Histogram::new_with_bounds(1, most.max(2), DIGITS).map_err(io::Error::other)?;
    values().for_each(|(value, count)| histogram.saturating_record_n(value, count));
    Ok(histogram)
}

/// Returns the tag of a line: `runqueue_latency:process:4711:sh`,
/// `block.latency:disk:nvme0n1:read:cgroup:/web`. A name contains no byte that ends a tag or a part of one.
fn tag(number: &Number<'_>) -> String {
    let mut tag = number.metric.clone().into_owned();
    if let Some(of) = number.subject {
        tag += &format!(":{}", words::subject(of));
        if let Subject::Disk(name, part) | Subject::Interface(name, part) = of {
            tag += &format!(":{}:{part}", escaped(name));
        }
    }
    let owner = match number.whose {
        Attribution::Host => return tag,
        Attribution::Target | Attribution::Owner(Owner::Other) => {
            return tag + ":" + words::kind(number.whose);
        }
        Attribution::Owner(owner) => owner,
    };
    tag += &format!(":{}", words::kind(number.whose));
    let (id, name) = match owner {
        Owner::Process { pid: id, name, .. } | Owner::Thread { tid: id, name, .. } => (Some(id), name),
        Owner::Ended { name, .. }
        | Owner::Program { name, .. }
        | Owner::Comm { name }
        | Owner::Exe { name } => (None, name),
        Owner::Cgroup { path, .. } => (None, path),
        Owner::Other => return tag,
    };
    if let Some(id) = id {
        // An id that exists only in the host's namespace is not valid in the collector's.
        tag += &match Id::of(*id) {
            Id::Here(id) => format!(":{id}"),
            Id::Outside(id) => format!(":host-{id}"),
        };
    }
    tag + ":" + &escaped(name)
}

/// Returns a name in letters, digits and `-._/`, with other bytes as %XX.
fn escaped(name: &Untrusted) -> String {
    let mut text = String::new();
    for &byte in name.as_bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'/' => text.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::Tag;
    use pmu_common::histogram::{BLOCK, RUNQUEUE};
    use proptest::prelude::{prop, prop_assert_eq, proptest};

    use super::{Attribution, Content, Number, Subject, to_hdr};
    use crate::{
        drain::Owner,
        metric::{number::Details, value::Distribution},
        model::histogram::Histogram,
        untrusted::Untrusted,
    };

    proptest! {
        #[test]
        fn every_percentile_is_the_middle_of_the_bucket(
            layout in prop::sample::select(vec![RUNQUEUE, BLOCK]),
            counts in prop::collection::btree_map(0_u16..512, 1_u32..1000, 1..40),
            quantile in 0.0_f64..=1.0,
        ) {
            let counts: Vec<(u16, u32)> = counts.into_iter().collect();
            let histogram = Histogram::between(layout, &[], &counts);
            let max = histogram.last().unwrap();
            let distribution = Distribution { histogram, sum: 0, max, coverage: 1.0 };
            let hdr = to_hdr(&distribution).unwrap();
            prop_assert_eq!(hdr.len(), distribution.count());
            let exact = distribution.quantile(quantile).estimate as u64;
            let read = hdr.value_at_quantile(quantile.max(f64::MIN_POSITIVE));
            if max.high == u64::MAX {
                // The last bucket has no middle.
                prop_assert_eq!(hdr.lowest_equivalent(read), hdr.lowest_equivalent(exact));
            } else {
                prop_assert_eq!(read, exact);
            }
        }
    }

    fn tag(whose: Attribution<'_>, subject: Option<&Subject>) -> String {
        let metric = if subject.is_some() { "block.latency" } else { "runqueue_latency" };
        let (parent, details) = (None, Details::default());
        let content = Content::Distribution(Err(""));
        super::tag(&Number { whose, subject, metric: metric.into(), parent, unit: "ns", content, details })
    }

    #[test]
    fn a_name_ends_no_tag_whatever_is_in_it() {
        let name = Untrusted::from("a b,c\n:%\u{e9}");
        let of = |owner: Owner| tag(Attribution::Owner(&owner), None);
        let process = of(Owner::Process { pid: 7, born_ns: 1, name });
        assert_eq!(process, "runqueue_latency:process:7:a%20b%2Cc%0A%3A%25%C3%A9");
        assert!(Tag::new(&process).is_some());
        let cgroup = Owner::cgroup(3, Untrusted::from("/web.slice/a-1"));
        assert_eq!(of(cgroup), "runqueue_latency:cgroup:/web.slice/a-1");
        assert_eq!(tag(Attribution::Target, None), "runqueue_latency:target");
        let (disk, web) = (Subject::Disk("a b".into(), "read"), Owner::cgroup(3, "/web".into()));
        assert_eq!(tag(Attribution::Owner(&web), Some(&disk)), "block.latency:disk:a%20b:read:cgroup:/web");
        assert_eq!(tag(Attribution::Host, Some(&disk)), "block.latency:disk:a%20b:read");
    }
}
