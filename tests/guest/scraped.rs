//! What `pmbpf serve` answers, asked for as plainly as can be.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// Where it listens unless told otherwise.
const ADDRESS: &str = "127.0.0.1:9477";

/// Does anything listen there?
pub(crate) fn listens() -> bool {
    TcpStream::connect(ADDRESS).is_ok()
}

/// The body of the answer to a request for a path; `None` if it is no success.
pub(crate) fn get(path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(ADDRESS).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.0 200").then(|| body.to_owned())
}

/// What there is to scrape now.
pub(crate) struct Scrape(String);

impl Scrape {
    pub(crate) fn now() -> Option<Self> {
        get("/metrics").map(Self)
    }

    /// The value of a target's series, if there is one.
    pub(crate) fn series(&self, name: &str, target: &str) -> Option<f64> {
        let series = format!("{name}{{target=\"{target}\"}} ");
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix(&series)).map(|value| value.parse().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}
