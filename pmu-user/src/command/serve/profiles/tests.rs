//! Tests with profiles that a collector takes, refuses, or gives no response for.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{WAITING_MAX, Waiting, push};
use crate::session::runtime;

/// Pushes waiting profiles to a collector that returns these responses, one a request, until `is_over`.
fn pushed(waiting: &Arc<Waiting>, answers: &'static [&'static str], is_over: impl Fn(&Waiting) -> bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let collector = thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut part = [0; 4096];
            // The head; a body of a few bytes comes with it or right after it.
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                let bytes = stream.read(&mut part).unwrap();
                request.extend_from_slice(&part[..bytes]);
            }
            write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    });
    let pushing = Arc::clone(waiting);
    runtime().unwrap().block_on(async {
        let push = tokio::spawn(push(to, pushing));
        let until = Instant::now() + Duration::from_secs(20);
        while !is_over(waiting) && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        push.abort();
    });
    assert!(is_over(waiting), "{:?}", waiting.counts());
    collector.join().unwrap();
}

#[test]
fn a_profile_is_pushed_until_it_is_taken_and_lost_where_it_is_refused() {
    let waiting = Arc::new(Waiting::default());
    for profile in [b"a", b"b"] {
        waiting.add(profile.to_vec().into());
    }
    // The first is tried again after a while; the second is refused for good.
    let answers = &["503 Service Unavailable", "200 OK", "404 Not Found"];
    pushed(&waiting, answers, |waiting| waiting.counts() == (1, 1));
    assert_eq!(waiting.first(), None);
}

#[test]
fn the_oldest_goes_where_too_many_wait() {
    let waiting = Waiting::default();
    for number in 0..WAITING_MAX as u8 + 2 {
        waiting.add(vec![number].into());
    }
    assert_eq!(waiting.counts(), (0, 2));
    assert_eq!(waiting.first().unwrap().1[..], [2]);
    // A profile that was dropped while it was on its way was counted already.
    waiting.done(1, &waiting.pushed);
    assert_eq!(waiting.counts(), (0, 2));
}
