//! Responses to requests: metrics in the requested format, whether counting goes on, and where to look.

use std::{
    io::Write as _,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{
        ACCEPT, ACCEPT_ENCODING, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE,
        HeaderName, HeaderValue, ORIGIN, RETRY_AFTER, USER_AGENT, VARY, WWW_AUTHENTICATE,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use tokio::sync::oneshot;

use super::{
    flight::{Asks, Refusal},
    published::Published,
    web::Web,
};
use crate::view::exposition::Exposition;

const TEXT: &str = "text/plain; charset=utf-8";

/// Response body of `/`.
const INDEX: &str = "pmbpf serve\n\n/metrics  series, for Prometheus and others that read its formats\n/healthz  200 while counting goes on\n/readyz   200 once there is something to scrape\n/flight   POST makes a dump of the last minutes, with --flight-recorder\n";

/// Path that makes a dump.
const FLIGHT: &str = "/flight";

/// Response body, made once for all clients that request the same.
#[derive(Debug)]
struct Made {
    sequence: u64,
    format: Exposition,
    is_gzip: bool,
    body: Bytes,
}

/// Responder to HTTP requests.
#[derive(Debug)]
pub(super) struct Answers {
    published: Arc<Published>,
    made: Mutex<Vec<Made>>,
    /// Handle for dump requests, if there is a flight recorder.
    flight: Option<Asks>,
}

/// Response, or the receiver of its result.
pub(super) enum Answer {
    Now(Response<Full<Bytes>>),
    Later(oneshot::Receiver<Result<String, Refusal>>),
}

impl Answer {
    /// Returns the response, once it is there.
    pub(super) async fn made(self) -> Response<Full<Bytes>> {
        match self {
            Self::Now(answer) => answer,
            Self::Later(dump) => of_dump(dump.await.unwrap_or(Err(Refusal::Busy))),
        }
    }
}

impl Answers {
    pub(super) fn new(published: Arc<Published>, flight: Option<Asks>) -> Self {
        Self { published, made: Mutex::new(Vec::new()), flight }
    }

    /// Returns the response to an admitted request from this address, whatever its body is.
    pub(super) fn to<B>(&self, request: &Request<B>, web: &Web, from: IpAddr) -> Answer {
        match &self.flight {
            Some(asks) if request.uri().path() == FLIGHT => match may_dump(request, web, from) {
                Some(refusal) => Answer::Now(refusal),
                None => asks.request().map_or_else(|why| Answer::Now(of_dump(Err(why))), Answer::Later),
            },
            _ => Answer::Now(self.at_once(request, from)),
        }
    }

    /// Returns the response to a request that changes nothing.
    fn at_once<B>(&self, request: &Request<B>, from: IpAddr) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/metrics" => self.metrics(request, from),
            "/healthz" => match self.published.stands_still() {
                None => plain(StatusCode::OK, "ok\n"),
                Some(since) => {
                    let why = format!("no interval has ended for {} s\n", since.as_secs());
                    plain(StatusCode::SERVICE_UNAVAILABLE, why)
                }
            },
            "/readyz" => match self.published.latest() {
                Some(_) => plain(StatusCode::OK, "ready\n"),
                None => plain(StatusCode::SERVICE_UNAVAILABLE, "the first interval is not over yet\n"),
            },
            "/" => plain(StatusCode::OK, INDEX),
            _ => plain(
                StatusCode::NOT_FOUND,
                match self.flight {
                    Some(_) => "there are /metrics, /healthz, /readyz and /flight\n",
                    None => "there are /metrics, /healthz and /readyz\n",
                },
            ),
        }
    }

    fn metrics<B>(&self, request: &Request<B>, from: IpAddr) -> Response<Full<Bytes>> {
        let Some(snapshot) = self.published.latest() else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "the first interval is not over yet\n");
        };
        let format = Exposition::accepted(values(request, &ACCEPT).as_deref());
        let is_gzip = values(request, &ACCEPT_ENCODING).is_some_and(|accepted| takes_gzip(&accepted));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|made| made.sequence == snapshot.sequence);
        let is = |made: &&Made| made.format == format && made.is_gzip == is_gzip;
        let body = match made.iter().find(is) {
            Some(made) => made.body.clone(),
            None => {
                let bytes = format.encode(&snapshot, self.published.started_unix_ns);
                let body = Bytes::from(if is_gzip { zipped(&bytes) } else { bytes });
                let sequence = snapshot.sequence;
                made.push(Made { sequence, format, is_gzip, body: body.clone() });
                body
            }
        };
        if request.method() == Method::GET {
            self.see(request, from, snapshot.sequence);
        }
        let mut answer = answer(StatusCode::OK, format.content_type(), body);
        let headers = answer.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
        if is_gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }

    /// Records that the client of a request sees a snapshot. Two Prometheus servers at one address differ by
    /// their scrape timeouts, or by a separate query.
    fn see<B>(&self, request: &Request<B>, from: IpAddr, sequence: u64) {
        const SCRAPE_TIMEOUT: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");
        let header = |name| values(request, &name).unwrap_or_default();
        let from = from.to_canonical().to_string();
        let query = request.uri().query().unwrap_or_default();
        let said = [USER_AGENT, AUTHORIZATION, SCRAPE_TIMEOUT].map(header);
        self.published.see(&[&from, query, &said[0], &said[1], &said[2]], sequence);
    }
}

/// Returns whether a request is a probe of kubelet or a balancer. Probes have no password, and the response
/// is whether counting goes on.
pub(super) fn is_probe<B>(request: &Request<B>) -> bool {
    let uri = request.uri();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    is_read && uri.query().is_none() && matches!(uri.path(), "/healthz" | "/readyz")
}

/// Returns the `Authorization` header of a request.
pub(super) fn authorization<B>(request: &Request<B>) -> Option<String> {
    values(request, &AUTHORIZATION)
}

/// Returns the response to a request that is not admitted.
pub(super) fn unauthorized() -> Response<Full<Bytes>> {
    let mut answer = plain(StatusCode::UNAUTHORIZED, "authentication required\n");
    let ask = HeaderValue::from_static("Basic realm=\"pmbpf\", Bearer");
    answer.headers_mut().insert(WWW_AUTHENTICATE, ask);
    answer
}

/// Returns the response to a request with an unchecked password.
pub(super) fn busy() -> Response<Full<Bytes>> {
    let mut answer = plain(
        StatusCode::TOO_MANY_REQUESTS,
        "too many passwords from this address are waiting to be checked\n",
    );
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// Returns the refusal of a dump for an admitted client, if it is refused. A disk is written, so the client
/// must be on this host or authenticated. A page in a browser is always refused.
fn may_dump<B>(request: &Request<B>, web: &Web, from: IpAddr) -> Option<Response<Full<Bytes>>> {
    if *request.method() != Method::POST {
        let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "POST makes a dump\n");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Some(answer);
    }
    if request.headers().contains_key(ORIGIN) {
        return Some(plain(StatusCode::FORBIDDEN, "requests from browser pages are refused\n"));
    }
    let is_known = from.to_canonical().is_loopback() || web.knows_who_asks();
    let why = "dumps are made for clients on this host, or with authentication (--web-config)\n";
    (!is_known).then(|| plain(StatusCode::FORBIDDEN, why))
}

/// Returns the response for a dump.
fn of_dump(dump: Result<String, Refusal>) -> Response<Full<Bytes>> {
    match dump {
        Ok(name) => plain(StatusCode::CREATED, format!("{name}\n")),
        Err(Refusal::TooSoon(left)) => {
            let seconds = left.as_secs() + 1;
            let mut answer =
                plain(StatusCode::TOO_MANY_REQUESTS, format!("a dump was just made: retry in {seconds} s\n"));
            answer.headers_mut().insert(RETRY_AFTER, seconds.into());
            answer
        }
        Err(Refusal::Busy) => plain(StatusCode::SERVICE_UNAVAILABLE, "the disk is slow\n"),
        Err(Refusal::Failed(why)) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// Returns all values of a header, as one list.
fn values<B>(request: &Request<B>, name: &HeaderName) -> Option<String> {
    let all = request.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<&str> = all.collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// Returns whether a list of encodings has gzip, and not with weight 0.
fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)))
    })
}

pub(super) fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    // Writing to a vector cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    answer(status, TEXT, text.into())
}

fn answer(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    let said =
        [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    for (name, value) in said {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::takes_gzip;

    #[test]
    fn gzip_is_taken_unless_it_is_refused() {
        assert!(takes_gzip("gzip") && takes_gzip("deflate, GZIP;q=0.5") && takes_gzip("br,gzip"));
        assert!(!takes_gzip("identity") && !takes_gzip("gzip;q=0") && !takes_gzip("gzip; q=0.0, br"));
    }
}
