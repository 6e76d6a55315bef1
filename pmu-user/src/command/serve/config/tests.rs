//! Tests of settings in YAML, and of the errors for faults.

use std::time::Duration;

use super::{Measured, Settings};

const ALL: Measured = Measured { off_cpu: true, interrupts: true, samples: true, io: true, flight: true };

fn options() -> Settings {
    Settings { max_targets: 200, max_series: 10_000, linger: Duration::from_secs(300), rules: Vec::new() }
}

#[test]
fn what_a_file_names_takes_the_place_of_the_options_and_the_rest_stays() {
    let text = "max-targets: 300\nlinger: 1m\nwhen:\n  - 'runqueue_latency.p99>20ms for 10s'\n";
    let settings = options().parse(text, ALL).unwrap();
    assert_eq!((settings.max_targets, settings.max_series), (300, 10_000));
    assert_eq!(settings.linger, Duration::from_secs(60));
    assert_eq!(settings.rules[0].text, "runqueue_latency.p99>20ms for 10s");
    assert_eq!(options().parse("", ALL).unwrap(), options());
    assert_eq!(options().parse("linger: 30", ALL).unwrap().linger, Duration::from_secs(30));
}

#[test]
fn a_fault_is_an_error_that_names_it() {
    let no_flight = Measured { flight: false, ..ALL };
    let no_io = Measured { io: false, ..ALL };
    for (text, measured, says) in [
        (
            "max_targets: 3",
            ALL,
            "unknown key `max_targets`; the keys are max-targets, max-series, linger and when",
        ),
        ("max-targets: 0", ALL, "max-targets is not a number of 1 to 10000"),
        ("max-targets: many", ALL, "max-targets is not a number"),
        ("max-series: 100", ALL, "max-series is not a number of 500 to 1000000"),
        ("linger: 5 apples", ALL, "linger: "),
        ("when: x", ALL, "when is not a list of rules"),
        ("when: ['cpu_time>']", ALL, "when: "),
        ("when: ['cpu_time>50%']", no_flight, "--flight-recorder"),
        ("when: ['block.read_bw>1MB/s']", no_io, "can never be met: leave out --no-io"),
        ("- 1", ALL, "it is not a mapping"),
        ("max-targets: 1\n---\nmax-targets: 2\n", ALL, "2 documents"),
    ] {
        let error = format!("{:#}", options().parse(text, measured).unwrap_err());
        assert!(error.contains(says), "{text}: {error}");
    }
}
