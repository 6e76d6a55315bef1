//! Responses of `pmbpf serve`, requested with plain HTTP.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// Default listen address.
const ADDRESS: &str = "127.0.0.1:9477";

/// Returns whether a server listens there.
pub(crate) fn listens() -> bool {
    TcpStream::connect(ADDRESS).is_ok()
}

/// Returns the body of the response for a path, or `None` without success.
pub(crate) fn get(path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(ADDRESS).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.0 200").then(|| body.to_owned())
}

/// Current scrape of the server.
pub(crate) struct Scrape(String);

impl Scrape {
    pub(crate) fn now() -> Option<Self> {
        get("/metrics").map(Self)
    }

    /// Returns the value of a target's series, if there is one.
    pub(crate) fn series(&self, name: &str, target: &str) -> Option<f64> {
        let series = format!("{name}{{target=\"{target}\"}} ");
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix(&series)).map(|value| value.parse().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}
