//! Push of counts to a collector, by OTLP over HTTP. Sums are since counting began, so a lost request needs
//! no second: the next one has all of it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, StatusCode, Uri,
    client::conn::http1,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time};

use super::{answer::zipped, published::Published};
use crate::{command::output, drain::Header, machine::duration_ns, view::exposition::otlp};

/// Time limit for a collector to respond.
const PATIENCE: Duration = Duration::from_secs(10);
/// Path where collectors take metrics (opentelemetry.io/docs/specs/otlp, 4.2).
const PATH: &str = "/v1/metrics";

/// Parses the URL of a collector for metrics.
pub(super) fn metrics_url(text: &str) -> Result<Uri, String> {
    url(text, PATH)
}

/// Parses the URL of a collector: `http://HOST:PORT`, with a path, or without, in which case it is `path`.
pub(super) fn url(text: &str, path: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("invalid URL `{text}`: {error}"))?;
    if uri.scheme_str() != Some("http") {
        return Err(format!(
            "`{text}` does not begin with http://: push to a collector on this host or in its network"
        ));
    }
    uri.host().ok_or_else(|| format!("no host in `{text}`"))?;
    if uri.path() != "/" {
        return Ok(uri);
    }
    let with_path = format!("{}{path}", text.trim_end_matches('/'));
    with_path.parse().map_err(|error| format!("invalid URL `{with_path}`: {error}"))
}

/// Reason why a collector has not taken a message.
#[derive(Debug)]
pub(super) enum Failure {
    /// The collector refuses the message, whenever it comes.
    Refused(String),
    /// The collector cannot be reached, or is busy (opentelemetry.io/docs/specs/otlp, 4.2.2: 429, 502, 503
    /// and 504).
    Unreachable(String),
}

/// State of failing pushes, reported when it begins and ends.
#[derive(Default)]
pub(super) struct Trouble {
    is_told: bool,
}

impl Trouble {
    /// Reports a change of the state.
    pub(super) fn tell(&mut self, to: &Uri, failure: Option<&Failure>) {
        match failure {
            Some(Failure::Refused(why) | Failure::Unreachable(why)) if !self.is_told => {
                output::talk(&format!("cannot push to {to}: {why}"));
            }
            None if self.is_told => output::talk(&format!("pushing to {to} again")),
            _ => {}
        }
        self.is_told = failure.is_some();
    }
}

/// Pushes at this interval, until the process ends. Reports when that begins to fail, and when it works
/// again.
pub(super) async fn push(to: Uri, every: Duration, header: Header, published: Arc<Published>) {
    let mut trouble = Trouble::default();
    let mut last = 0;
    loop {
        time::sleep(every).await;
        let Some(snapshot) = published.latest().filter(|snapshot| snapshot.sequence > last) else { continue };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let result = post(&to, PATH, &otlp::encode(&snapshot, &header, duration_ns(now))).await;
        trouble.tell(&to, result.as_ref().err());
        if result.is_ok() {
            last = snapshot.sequence;
            published.pushed(snapshot.sequence, every);
        }
    }
}

/// Posts a message in Protocol Buffers, to a path where the URL has none.
pub(super) async fn post(to: &Uri, path: &str, message: &[u8]) -> Result<(), Failure> {
    match time::timeout(PATIENCE, once(to, path, message)).await {
        Ok(Ok(status)) if status.is_success() => Ok(()),
        Ok(Ok(status)) if matches!(status.as_u16(), 429 | 502 | 503 | 504) => {
            Err(Failure::Unreachable(format!("it returns {status}")))
        }
        Ok(Ok(status)) => Err(Failure::Refused(format!("it returns {status}"))),
        Ok(Err(error)) => Err(Failure::Unreachable(error.to_string())),
        Err(_) => Err(Failure::Unreachable(format!("no response within {} s", PATIENCE.as_secs()))),
    }
}

async fn once(to: &Uri, path: &str, message: &[u8]) -> anyhow::Result<StatusCode> {
    let body = zipped(message);
    let host = to.host().unwrap_or_default();
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), to.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::post(to.path_and_query().map_or(path, |path| path.as_str()))
        .header(HOST, to.authority().map_or(host, |authority| authority.as_str()))
        .header(USER_AGENT, concat!("pmbpf/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(CONTENT_ENCODING, "gzip")
        .body(Full::new(Bytes::from(body)))?;
    let answer = sender.send_request(request).await?;
    connection.abort();
    Ok(answer.status())
}

#[cfg(test)]
mod tests {
    use super::metrics_url;

    #[test]
    fn a_collector_is_named_with_or_without_a_path() {
        let path = |text: &str| metrics_url(text).map(|uri| uri.to_string());
        assert_eq!(path("http://127.0.0.1:4318").unwrap(), "http://127.0.0.1:4318/v1/metrics");
        assert_eq!(path("http://c:4318/").unwrap(), "http://c:4318/v1/metrics");
        assert_eq!(
            path("http://[::1]:8428/opentelemetry/v1/metrics").unwrap(),
            "http://[::1]:8428/opentelemetry/v1/metrics"
        );
        assert!(path("https://c:4318").unwrap_err().contains("http://"));
        assert!(path("c:4318").is_err() && path("").is_err() && path("/v1/metrics").is_err());
    }
}
