//! Tests of readers at their intervals, distinguished or not.

use super::{READERS_MAX, Readers, SECOND_NS, Seen};

/// Returns what has been seen after `seconds` by readers, each with its interval and start in tenths of a
/// second. There is a snapshot each second.
fn seen(readers: &[(&str, u64, u64)], seconds: u64) -> Seen {
    let mut all = Readers::default();
    for now in 0..=seconds * 10 {
        for (name, every, from) in readers {
            if now >= *from && (now - from) % every == 0 {
                all.see(&[name], now / 10, now * SECOND_NS / 10);
            }
        }
    }
    all.seen(seconds * SECOND_NS)
}

#[test]
fn one_reader_needs_its_next_request_and_no_time() {
    assert_eq!(seen(&[("a", 150, 0)], 3), Seen::snapshot(0));
    assert_eq!(seen(&[("a", 150, 0)], 3607), Seen::snapshot(3600));
}

#[test]
fn of_several_the_one_that_has_seen_least_decides() {
    assert_eq!(seen(&[("a", 10, 0), ("b", 600, 0)], 3650), Seen::snapshot(3600));
    assert_eq!(seen(&[("a", 10, 0), ("b", 600, 70)], 3605), Seen::snapshot(3547));
}

#[test]
fn readers_that_cannot_be_distinguished_have_time() {
    // As in two-readers.py, and two with one of a minute.
    for readers in [
        &[("a", 10, 0), ("a", 70, 3)][..],
        &[("a", 150, 0), ("a", 150, 40), ("a", 600, 21)],
        &[("a", 10, 0), ("a", 600, 0)],
    ] {
        for seconds in [70, 123, 300, 1205] {
            let seen = seen(readers, seconds);
            assert!(seen.hold_ns > 60 * SECOND_NS, "{readers:?} after {seconds} s: {seen:?}");
        }
    }
    // Both come every five minutes.
    let slow = seen(&[("a", 3000, 0), ("a", 3000, 1000)], 3600);
    assert_eq!(slow.hold_ns, 300 * SECOND_NS);
}

#[test]
fn one_that_is_left_of_several_is_one_again() {
    let mut all = Readers::default();
    for second in 0..400 {
        all.see(&["a"], second, second * SECOND_NS);
        if second < 100 && second % 7 == 0 {
            all.see(&["a"], second, second * SECOND_NS + SECOND_NS / 3);
        }
        let now_ns = second * SECOND_NS + SECOND_NS / 2;
        match second {
            2..200 => assert!(all.seen(now_ns).hold_ns > 0, "{second}"),
            240.. => assert_eq!(all.seen(now_ns), Seen::snapshot(second)),
            _ => {}
        }
    }
}

#[test]
fn a_reader_that_is_late_by_what_a_busy_host_takes_is_one() {
    let mut all = Readers::default();
    for scrape in 0..100 {
        let late_ns = scrape % 3 * 90_000_000;
        all.see(&["a"], scrape, scrape * 15 * SECOND_NS + late_ns);
        assert_eq!(all.seen(scrape * 15 * SECOND_NS + late_ns).hold_ns, 0, "{scrape}");
    }
}

#[test]
fn a_reader_that_is_gone_is_waited_for_three_intervals() {
    let mut all = Readers::default();
    for second in 0..2000 {
        all.see(&["fast"], second, second * SECOND_NS);
        if second <= 600 && second % 60 == 0 {
            all.see(&["slow"], second, second * SECOND_NS);
        }
        let sequence = all.seen(second * SECOND_NS).sequence;
        assert_eq!(sequence, if (600..=780).contains(&second) { 600 } else { sequence }, "{second}");
        assert!(second <= 780 || sequence == second, "{second}: {sequence}");
    }
}

#[test]
fn without_readers_what_was_seen_stays() {
    let mut all = Readers::default();
    assert_eq!(all.seen(5), Seen::snapshot(0));
    all.see(&["a"], 4, SECOND_NS);
    assert_eq!(all.seen(9999 * SECOND_NS), Seen::snapshot(4));
}

#[test]
fn what_is_pushed_is_a_reader() {
    let mut all = Readers::default();
    all.see(&["a"], 9, 9 * SECOND_NS);
    all.push(7, 10 * SECOND_NS, 8 * SECOND_NS);
    assert_eq!(all.seen(10 * SECOND_NS), Seen::snapshot(7));
    // A reader that was late is not several.
    all.push(30, 10 * SECOND_NS, 31 * SECOND_NS);
    all.push(32, 10 * SECOND_NS, 33 * SECOND_NS);
    assert_eq!(all.seen(34 * SECOND_NS), Seen::snapshot(9));
}

#[test]
fn there_are_never_more_than_there_is_room_for() {
    let mut all = Readers::default();
    for one in 0..10_000_u64 {
        all.see(&[&one.to_string()], one, one * SECOND_NS / 1000);
    }
    assert_eq!(all.known.len(), READERS_MAX);
    let seen = all.seen(10 * SECOND_NS);
    assert!(seen.hold_ns > 60 * SECOND_NS, "those beyond are not distinguished: {seen:?}");
    all.see(&["later"], 10_000, 1000 * SECOND_NS);
    assert!(all.known.len() < READERS_MAX, "those that came once are gone");
}

#[test]
fn a_reader_keeps_a_bounded_past() {
    let mut all = Readers::default();
    (0..100_000).for_each(|at| all.see(&["a"], at, at * 1_000_000));
    assert!(all.known.values().all(|reader| reader.arrivals.len() <= super::ARRIVALS_MAX));
}
