//! Rates and latencies of block requests.

use crate::{
    metric::value::{Distribution, Value},
    model::{histogram::Histogram, io::traffic::Requests},
};

const NO_REQUESTS: &str = "no requests";
const NO_LATENCIES: &str = "no request was seen from its start to its end";
const NONE_QUEUED: &str = "no request waited in a queue of its device";
/// Reason for a missing rate.
pub(super) const NO_TIME: &str = "the interval has no length";

/// Rates and latencies of block requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestReport {
    /// Requests per second.
    pub requests_per_second: Value,
    /// Bytes per second.
    pub bytes_per_second: Value,
    /// Mean size of a request, in bytes.
    pub request_bytes: Value,
    /// Device latencies in ns, from when the device received a request to its completion, or the reason why
    /// there are none. A request that the device gave back counts from when it received it last.
    pub device: Result<Distribution, &'static str>,
    /// Queue times in ns of the requests that waited in a queue.
    pub queue: Result<Distribution, &'static str>,
    /// Share of the requests that waited in a queue (0 to 1).
    pub queued_share: Value,
}

/// Returns rates and latencies of the requests of `duration_ns`.
pub fn report(requests: &Requests, duration_ns: u64) -> RequestReport {
    let seconds = duration_ns as f64 / 1e9;
    let rate = |count: u64| Value::ratio(count as f64, seconds, NO_TIME);
    // The share of requests seen from their start is the coverage of the latencies.
    let coverage = 1.0 - share(requests.unstarted, requests.requests);
    RequestReport {
        requests_per_second: rate(requests.requests),
        bytes_per_second: rate(requests.bytes),
        request_bytes: Value::ratio(requests.bytes as f64, requests.requests as f64, NO_REQUESTS),
        device: distribution(&requests.latency, requests.latency_ns, coverage)
            .ok_or_else(|| why_no_latency(requests)),
        queue: distribution(&requests.queue, requests.queue_ns, coverage)
            .ok_or_else(|| why_no_queue(requests)),
        queued_share: match requests.requests - requests.unstarted.min(requests.requests) {
            0 => Value::Missing(why_no_latency(requests).to_owned()),
            seen => Value::ratio(requests.queued as f64, seen as f64, NO_REQUESTS),
        },
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

const fn why_no_latency(requests: &Requests) -> &'static str {
    if requests.requests == 0 { NO_REQUESTS } else { NO_LATENCIES }
}

fn why_no_queue(requests: &Requests) -> &'static str {
    if requests.latency.count() > 0 { NONE_QUEUED } else { why_no_latency(requests) }
}

fn distribution(latencies: &Histogram, sum: u64, coverage: f64) -> Option<Distribution> {
    latencies.last().map(|max| Distribution { histogram: latencies.clone(), sum, max, coverage })
}

#[cfg(test)]
mod tests {
    use pmu_common::histogram::BLOCK;

    use super::{NO_LATENCIES, NO_REQUESTS, NONE_QUEUED, report};
    use crate::{
        metric::value::{QUANTILES, Value},
        model::{histogram::Histogram, io::traffic::Requests},
    };

    fn latencies(buckets: &[(u16, u32)]) -> Histogram {
        Histogram::between(BLOCK, &[], buckets)
    }

    /// Returns 90 requests of about 1 µs and 10 of about 1 ms, of which 5 waited, and 20 more without a
    /// start.
    fn some() -> Requests {
        Requests {
            requests: 120,
            bytes: 120 * 4096,
            latency_ns: 90 * 1000 + 10 * 1_000_000,
            latency: latencies(&[(111, 90), (270, 10)]),
            queued: 5,
            queue_ns: 50,
            queue: latencies(&[(10, 5)]),
            unstarted: 20,
            ..Requests::default()
        }
    }

    #[test]
    fn a_quantile_is_its_bucket() {
        let report = report(&some(), 2_000_000_000);
        assert_eq!(report.requests_per_second, Value::exact(60.0));
        let device = report.device.unwrap();
        let [p50, p90, p99, _] = QUANTILES.map(|(_, share)| device.quantile(share));
        assert_eq!((p50.low, p50.high), (p90.low, p90.high));
        assert!(p50.low <= 1000.0 && 1000.0 <= p50.high, "{p50:?}");
        assert!(p99.low > p50.high && p99.high / p99.low < 1.0626, "{p99:?}");
        assert_eq!((device.max.low as f64, device.mean().estimate), (p99.low, 100_900.0));
    }

    #[test]
    fn requests_whose_start_was_not_seen_lessen_what_latencies_rest_on() {
        let report = report(&some(), 1);
        assert_eq!(report.device.unwrap().quantile(0.5).coverage, 1.0 - 20.0 / 120.0);
        assert_eq!(report.queued_share, Value::exact(0.05));
    }

    #[test]
    fn what_did_not_happen_is_missing_with_its_reason() {
        let nothing = report(&Requests::default(), 1_000_000_000);
        assert_eq!(nothing.device, Err(NO_REQUESTS));
        assert_eq!(nothing.requests_per_second, Value::exact(0.0));
        let unseen = report(&Requests { requests: 3, unstarted: 3, ..Requests::default() }, 1);
        assert_eq!((unseen.device, unseen.queue), (Err(NO_LATENCIES), Err(NO_LATENCIES)));
        let direct = report(&Requests { queue: Histogram::default(), ..some() }, 1);
        assert_eq!(direct.queue, Err(NONE_QUEUED));
    }

    #[test]
    fn a_latency_beyond_the_last_bucket_has_no_upper_end() {
        let endless = Requests { requests: 1, latency: latencies(&[(511, 1)]), ..Requests::default() };
        assert_eq!(report(&endless, 1).device.unwrap().quantile(1.0).high, f64::INFINITY);
    }
}
