//! Reasons why I/O was not counted, or not for its owner. Codes are permanent: a number is never reused for
//! another reason.

/// A request did not fit the table of requests in flight: it has no latency.
pub const IN_FLIGHT_FULL: usize = 0;
/// An owner beyond the limit: its device's common row counts for it.
pub const OWNER_LIMIT: usize = 1;
/// A map had no room for an owner's identity: it is looked up repeatedly, or the device's common row counts
/// for it.
pub const MAP_FULL: usize = 2;
/// A completion interrupted the accounting of another one on its CPU and was not counted. Since Linux 6.1 the
/// kernel skips and counts such runs itself.
pub const NESTED: usize = 3;
/// Two requests that started at once used one entry of the table. The later completion has no latency.
pub const TORN: usize = 4;

/// Number of reasons.
pub const REASONS: usize = 5;

/// Names of the reasons in every output, by code.
pub const NAMES: [&str; REASONS] =
    ["io_in_flight_full", "io_owner_limit", "io_map_full", "io_nested", "io_torn"];
