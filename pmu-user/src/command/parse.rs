//! Parsers of values on the command line.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use crate::{
    machine::cpu::{Cpu, parse_list},
    plan::io::request::Limits,
};

/// Parses `5`, `500ms`, `1.5m`: a number, in seconds if it has no unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let split =
        text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 =
        number.parse().map_err(|_| format!("`{text}` is not a duration such as 500ms, 5s or 2m"))?;
    let seconds = match unit {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(format!("unknown time unit `{unit}`; use us, ms, s, m or h")),
    };
    if seconds == 0.0 {
        return Err("a duration must be longer than 0".to_owned());
    }
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| format!("`{text}` is too short or too long"))
}

/// Parses a duration, or 0.
pub(super) fn duration_or_none(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    if number.parse() == Ok(0.0) { Ok(Duration::ZERO) } else { duration(text) }
}

/// Shortest interval between reports: below it, draining would cost more than what it shows.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Limit from which numbers need a unit.
const BARE_MAX: Duration = Duration::from_secs(100);

/// Parses a duration of at least 10 ms.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    // perf's -I is in milliseconds.
    if interval >= BARE_MAX && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{text} without a unit would be seconds: write {text}ms or {text}s"));
    }
    if interval < INTERVAL_MIN { Err("the shortest interval is 10ms".to_owned()) } else { Ok(interval) }
}

/// Narrowest text report: nothing would be left of a name in a narrower one.
pub(super) const WIDTH_MIN: u16 = 20;

/// Parses the columns of a text report, or 0. A terminal may have fewer, the option may not.
pub(super) fn width(text: &str) -> Result<u16, String> {
    let columns: u16 = text.parse().map_err(|_| format!("`{text}` is not a whole number of columns"))?;
    if (1..WIDTH_MIN).contains(&columns) {
        return Err(format!("the minimum is {WIDTH_MIN} columns; 0 means as many as the rows need"));
    }
    Ok(columns)
}

/// Parses a process or thread id, which is positive.
pub(super) fn id(text: &str) -> Result<u32, String> {
    let wrong = || {
        let is_name = text.starts_with(|first: char| first.is_ascii_alphabetic());
        let of_name =
            if is_name { "; `$(pidof -s NAME)` is the id of a program, --cgroup takes names" } else { "" };
        format!("`{text}` is not a process or thread id{of_name}")
    };
    text.parse().ok().filter(|&id| id > 0).ok_or_else(wrong)
}

/// Parses the name of a cgroup. It is not empty: an empty variable of a script must not mean the whole host.
pub(super) fn cgroup(text: &str) -> Result<String, String> {
    let name = text.split_once(':').map_or(text, |(_, name)| name);
    if name.trim().is_empty() {
        return Err("it names no cgroup; `/` is all of them".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses an address and port to listen on: `ADDRESS:PORT`, with the address in brackets or not,
/// `localhost:PORT`, or `:PORT` of every address.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    let wanted = || {
        let of_v6 = text.parse::<Ipv6Addr>().is_ok();
        let hint = if of_v6 { " (write an IPv6 address in brackets: [::1]:9477)" } else { "" };
        format!("{text} is not ADDRESS:PORT, e.g. 127.0.0.1:9477, [::1]:9477 or :9477{hint}")
    };
    let (address, port) = text.rsplit_once(':').ok_or_else(wanted)?;
    let port: u16 = port.parse().map_err(|_| wanted())?;
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address: IpAddr = match bare.unwrap_or(address) {
        "" if bare.is_none() => Ipv6Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        // Without brackets, an IPv6 address and a port are ambiguous.
        v6 if bare.is_none() && v6.contains(':') => return Err(wanted()),
        address => address.parse().map_err(|_| wanted())?,
    };
    Ok(SocketAddr::new(address, port))
}

/// Returns a parser of the names of configurations.
pub(super) fn profile() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(crate::table::profile::ALL.map(|profile| profile.name))
}

/// CPU list in the kernel's form, as one value.
#[derive(Clone, Debug)]
pub(super) struct CpuList(pub(super) Vec<Cpu>);

/// Parses a CPU list such as `0-3,7`.
pub(super) fn cpus(text: &str) -> Result<CpuList, String> {
    parse_list(text).map(CpuList)
}

/// Bandwidths that are watched, by short name and by the name of VTune's option.
pub(super) const NAMES: [(&str, &str); 3] =
    [("dram", "dram.bandwidth"), ("upi", "upi.utilization"), ("pcie", "pcie.inbound")];

/// Parses `dram=60,120`: below 60 GB/s is low, from 120 GB/s on high.
pub(super) fn limits(text: &str) -> Result<Limits, String> {
    let known = || NAMES.map(|(name, _)| name).join(", ");
    let (name, numbers) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` sets no limits; write e.g. dram=60,120 ({})", known()))?;
    let full = NAMES.iter().find(|(short, full)| name == *short || name == *full).map(|(_, full)| *full);
    let name = full.ok_or_else(|| format!("unknown bandwidth `{name}`; use {}", known()))?;
    let number =
        |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let numbers = numbers.split_once(',').and_then(|(low, high)| Some((number(low)?, number(high)?)));
    let (low, high) =
        numbers.ok_or_else(|| format!("`{text}` needs two limits, neither below 0, e.g. dram=60,120"))?;
    if low >= high {
        return Err(format!("`{text}`: low ends at {low}, so high cannot begin at {high}"));
    }
    Ok(Limits { name: name.to_owned(), low, high })
}

/// Parses a bandwidth in GB/s.
pub(super) fn gigabytes(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("`{text}` is not a bandwidth in GB/s, e.g. 204.8"))
}

/// Parses a size in bytes, such as `256M`: a number, followed by K, M or G, which are powers of 1000.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size, e.g. 256M or 2G");
    let (number, factor) = match text.trim().strip_suffix('B').unwrap_or(text.trim()) {
        text if text.ends_with(['K', 'k']) => (&text[..text.len() - 1], 1e3),
        text if text.ends_with('M') => (&text[..text.len() - 1], 1e6),
        text if text.ends_with('G') => (&text[..text.len() - 1], 1e9),
        text => (text, 1.0),
    };
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.map(|number| (number * factor) as u64).ok_or_else(wrong)
}

/// Parses the separator of fields: a character, or `\t`.
pub(super) fn separator(text: &str) -> Result<char, String> {
    let mut characters = text.chars();
    match (text, characters.next(), characters.next()) {
        ("\\t", ..) => Ok('\t'),
        (_, Some(one), None) if !one.is_alphanumeric() && !"\n\r.<>\"".contains(one) => Ok(one),
        _ => Err(format!("invalid separator `{text}`; use one character, e.g. `,`, `;` or `\\t`")),
    }
}

/// Parses a share: `5%`, or `5`.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    let number = number.filter(|number| (0.0..=100.0).contains(number));
    number.map(|number| number / 100.0).ok_or_else(|| format!("`{text}` is not a share from 0% to 100%"))
}

/// Parses the share of the CPUs that counting may cost, above 0.
pub(super) fn budget(text: &str) -> Result<f64, String> {
    let share = percent(text)?;
    if share > 0.0 {
        Ok(share)
    } else {
        Err("a budget must be more than 0%: counting always costs something".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        budget, bytes, duration, gigabytes, id, interval, limits, listen, percent, separator, width,
    };

    #[test]
    fn an_address_may_stand_in_brackets() {
        let at = |text: &str| listen(text).map(|address| address.to_string());
        let is = |text: &str| Ok(text.to_owned());
        assert_eq!(at("127.0.0.1:9477"), is("127.0.0.1:9477"));
        assert_eq!(
            (at("[fd00::1]:9477"), at("[10.0.0.7]:9477")),
            (is("[fd00::1]:9477"), is("10.0.0.7:9477"))
        );
        assert_eq!((at(":9477"), at("localhost:0")), (is("[::]:9477"), is("127.0.0.1:0")));
        for wrong in [
            "::1:9477",
            "fd00::1:9477",
            "fd00::1",
            "9477",
            "web:9477",
            "[]:9477",
            "[::1]",
            "10.0.0.7:65536",
            "",
        ] {
            assert!(listen(wrong).unwrap_err().contains("ADDRESS:PORT"), "{wrong}");
        }
        assert!(listen("fd00::1:9477").unwrap_err().contains("brackets"));
    }

    #[test]
    fn a_share_is_in_per_cent() {
        assert_eq!((percent("5%"), percent("0.5"), percent("100%")), (Ok(0.05), Ok(0.005), Ok(1.0)));
        assert_eq!(budget("0.5%"), Ok(0.005));
        assert!(budget("0").is_err() && budget("101%").is_err());
        assert!(percent("101%").is_err() && percent("-1").is_err() && percent("NaN").is_err());
    }

    #[test]
    fn a_separator_is_a_character_that_no_number_has() {
        assert_eq!(
            (separator(","), separator("\\t"), separator("\t"), separator("|")),
            (Ok(','), Ok('\t'), Ok('\t'), Ok('|'))
        );
        assert!(["", ",,", "x", "7", ".", "\n", "ab"].iter().all(|text| separator(text).is_err()));
    }

    #[test]
    fn a_duration_is_in_seconds_unless_it_has_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert!(
            duration("5 parsecs").is_err()
                && duration("s").is_err()
                && duration("0s").is_err()
                && duration("0").is_err()
        );
        assert!(duration("-1s").is_err());
    }

    #[test]
    fn an_interval_is_not_shorter_than_it_is_worth() {
        assert!(interval("1ms").is_err() && interval("10ms").is_ok());
        let said = interval("1000").unwrap_err();
        assert!(
            said.contains("1000ms or 1000s") && interval("1000s").is_ok() && interval("15").is_ok(),
            "{said}"
        );
    }

    #[test]
    fn a_width_is_0_or_has_room_for_a_name() {
        assert_eq!((width("0"), width("20"), width("65535")), (Ok(0), Ok(20), Ok(65535)));
        for narrow in ["1", "10", "19"] {
            assert!(width(narrow).unwrap_err().contains("the minimum is 20 columns; 0 means"), "{narrow}");
        }
        assert!(width("-80").is_err() && width("65536").is_err() && width("wide").is_err());
    }

    #[test]
    fn an_id_is_positive() {
        assert!(id("0").is_err() && id("-3").is_err() && id("x").is_err());
        assert_eq!(id("42"), Ok(42));
    }

    #[test]
    fn limits_have_a_name_and_an_order() {
        let dram = limits("dram=60,120.5").unwrap();
        assert_eq!((dram.name.as_str(), dram.low, dram.high), ("dram.bandwidth", 60.0, 120.5));
        assert_eq!(limits("upi.utilization=0,50").unwrap().name, "upi.utilization");
        for (wrong, says) in [
            ("60,120", "write e.g. dram"),
            ("disk=1,2", "dram, upi, pcie"),
            ("dram=60", "two limits"),
            ("dram=-1,2", "two limits"),
            ("dram=NaN,2", "two limits"),
            ("dram=120,60", "cannot begin at 60"),
            ("dram=5,5", "cannot begin at 5"),
        ] {
            let error = limits(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_size_is_in_powers_of_1000() {
        assert_eq!(
            (bytes("256M"), bytes("1.5GB"), bytes("900")),
            (Ok(256_000_000), Ok(1_500_000_000), Ok(900))
        );
        assert!(bytes("0").is_err() && bytes("M").is_err() && bytes("-1K").is_err() && bytes("1T").is_err());
    }

    #[test]
    fn a_bandwidth_is_more_than_nothing() {
        assert_eq!(gigabytes("204.8"), Ok(204.8));
        assert!(gigabytes("0").is_err() && gigabytes("-3").is_err() && gigabytes("inf").is_err());
    }
}
