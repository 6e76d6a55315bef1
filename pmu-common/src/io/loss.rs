//! Why I/O was not counted, or not for its owner. Codes are permanent: a number is never used for another reason.

/// A request found no room in the table of those in flight: it has no latency.
pub const IN_FLIGHT_FULL: usize = 0;
/// An owner beyond the limit: its device's common row counts for it.
pub const OWNER_LIMIT: usize = 1;
/// A map had no room for an owner's identity: it is looked up again and again, or the device's common row counts for
/// it.
pub const MAP_FULL: usize = 2;
/// A completion interrupted the accounting of another one on its CPU and was not counted. Since Linux 6.1 the kernel
/// leaves such runs out itself, and counts them.
pub const NESTED: usize = 3;
/// Two requests that started at once used one entry of the table: the later completion has no latency.
pub const TORN: usize = 4;

/// Number of reasons.
pub const REASONS: usize = 5;

/// The reasons' names in every output, by code.
pub const NAMES: [&str; REASONS] =
    ["io_in_flight_full", "io_owner_limit", "io_map_full", "io_nested", "io_torn"];
