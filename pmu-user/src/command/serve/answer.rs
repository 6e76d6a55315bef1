//! What is answered to a request: metrics in the format that it asks for, whether counting goes on, and where to look.

use std::{
    io::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{
        ACCEPT, ACCEPT_ENCODING, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE,
        HeaderName, VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    },
};

use super::{published::Published, web::Web};
use crate::view::exposition::Exposition;

const TEXT: &str = "text/plain; charset=utf-8";

/// What `/` says.
const INDEX: &str = "pmbpf serve\n\n/metrics  series, for Prometheus and others that read its formats\n/healthz  is counting going on?\n/readyz   is there anything to scrape yet?\n";

/// A body that was made once for all who ask for the same.
#[derive(Debug)]
struct Made {
    sequence: u64,
    format: Exposition,
    is_gzip: bool,
    body: Bytes,
}

/// Answers requests.
#[derive(Debug)]
pub(super) struct Answers {
    published: Arc<Published>,
    made: Mutex<Vec<Made>>,
}

impl Answers {
    pub(super) fn new(published: Arc<Published>) -> Self {
        Self { published, made: Mutex::new(Vec::new()) }
    }

    /// The answer to a request, whatever its body is, of somebody who has to be admitted.
    pub(super) fn to<B>(&self, request: &Request<B>, web: &Web) -> Response<Full<Bytes>> {
        if !web.admits(values(request, &AUTHORIZATION).as_deref()) {
            let mut answer = plain(StatusCode::UNAUTHORIZED, "who is there?\n");
            let ask = hyper::header::HeaderValue::from_static("Basic realm=\"pmbpf\", Bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, ask);
            return answer;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
            answer.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/metrics" => self.metrics(request),
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
            _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
        }
    }

    fn metrics<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
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
            self.published.see(snapshot.sequence);
        }
        let mut answer = answer(StatusCode::OK, format.content_type(), body);
        let headers = answer.headers_mut();
        headers.insert(VARY, hyper::header::HeaderValue::from_static("accept, accept-encoding"));
        if is_gzip {
            headers.insert(CONTENT_ENCODING, hyper::header::HeaderValue::from_static("gzip"));
        }
        answer
    }
}

/// All values of a header, as one list.
fn values<B>(request: &Request<B>, name: &HeaderName) -> Option<String> {
    let all = request.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<&str> = all.collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// Does a list of encodings have gzip, and not with weight 0?
fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)))
    })
}

pub(super) fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    // Nothing can go wrong in a vector.
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
        headers.insert(name, hyper::header::HeaderValue::from_static(value));
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
