//! HTTP listener, which passes requests to the responder. It runs on a separate thread without any privilege,
//! so that neither a slow nor a hostile client affects counting.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    thread::Builder,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time,
};
use tokio_rustls::TlsAcceptor;

use super::{
    answer::{self, Answers},
    passwords::{Checked, Passwords},
    places::{Place, Places, Stage},
    web::{Admission, Web},
};
use crate::{
    command::output,
    session::{
        confine::{Duty, confine},
        runtime,
    },
};

/// Maximum number of connections that wait to be accepted, as far as the kernel allows it.
const BACKLOG: i32 = 4096;
/// Time limit for a client to write its request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for all of a connection, the response included.
const PATIENCE_FOR_ALL: Duration = Duration::from_secs(30);
/// Size limit of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Pause after an error that is not one of a connection: no file descriptors are left, most often.
const PAUSE: Duration = Duration::from_millis(50);
/// Delay of a refusal without a check. Without it, clients that retry at once would be as many a second as
/// can connect.
const REFUSAL: Duration = Duration::from_secs(1);

/// Responder, and the clients that it admits.
pub(super) struct Site {
    answers: Answers,
    web: Mutex<Arc<Web>>,
    passwords: Arc<Passwords>,
    /// File of the web configuration.
    file: Option<PathBuf>,
}

impl Site {
    /// Returns a site of these answers, with a web configuration that is read again from its file.
    pub(super) fn new(answers: Answers, web: Web, file: Option<PathBuf>) -> io::Result<Self> {
        Ok(Self { answers, web: Mutex::new(Arc::new(web)), passwords: Arc::new(Passwords::new()?), file })
    }

    /// Returns whether connections are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.web().tls.is_some()
    }

    fn web(&self) -> Arc<Web> {
        Arc::clone(&self.web.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the web configuration again, which takes the privilege to do so. One that cannot be read, or
    /// that requires less of clients, changes nothing.
    pub(super) fn reload(&self) {
        let Some(file) = &self.file else { return };
        let read = Web::read(file).and_then(|web| match web.opens(&self.web()) {
            Some(why) => anyhow::bail!("{}: {why}: restart to serve without", file.display()),
            None => Ok(web),
        });
        match read {
            Ok(web) => {
                *self.web.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(web);
                output::talk(&format!("{} is in force", file.display()));
            }
            Err(error) => output::talk(&format!("the previous settings stay in force: {error:#}")),
        }
    }

    /// Returns the response to a request of a client that has a place.
    async fn answer<B>(
        &self,
        request: &Request<B>,
        web: &Web,
        (place, from): (&Place, IpAddr),
    ) -> Response<Full<Bytes>> {
        let checked = match web.admits(answer::authorization(request).as_deref()) {
            _ if answer::is_probe(request) => Checked::Right,
            Admission::Granted => Checked::Right,
            Admission::Refused => Checked::Wrong,
            Admission::Password(credentials) => {
                place.is_at(Stage::Password);
                self.passwords.check(place.address, credentials).await
            }
        };
        let answer = match checked {
            Checked::Right => self.answers.to(request, web, from).made().await,
            Checked::Wrong => answer::unauthorized(),
            Checked::Refused => {
                time::sleep(REFUSAL).await;
                answer::busy()
            }
        };
        place.is_at(Stage::Answer);
        answer
    }
}

/// Returns sockets that listen at these addresses, each with its local address.
pub(super) fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Vec<(TcpListener, SocketAddr)>> {
    let bound = |address: &SocketAddr| {
        let every = [*address, (Ipv4Addr::UNSPECIFIED, address.port()).into()];
        // On a host without IPv6, every address is one of IPv4.
        let listener =
            TcpListener::bind(&every[..if address.ip() == Ipv6Addr::UNSPECIFIED { 2 } else { 1 }])?;
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        Ok((listener, at))
    };
    let all = addresses.iter().map(|address| {
        bound(address).map_err(|error: io::Error| {
            let error = anyhow::Error::new(error);
            error.context(format!("cannot listen at {address}: choose another with --listen"))
        })
    });
    all.collect()
}

/// Background task of the HTTP thread.
pub(super) type Beside = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves from now on, and runs background tasks, until the process ends. The calling thread has been
/// confined.
pub(super) fn begin(listeners: Vec<TcpListener>, site: Arc<Site>, beside: Vec<Beside>) -> anyhow::Result<()> {
    Builder::new().name("http".to_owned()).spawn(move || {
        confine(Duty::Answer);
        if let Ok(runtime) = runtime() {
            runtime.block_on(async {
                for task in beside {
                    tokio::spawn(task);
                }
                all(listeners, site).await;
            });
        }
    })?;
    Ok(())
}

async fn all(listeners: Vec<TcpListener>, site: Arc<Site>) {
    let places = Arc::new(Places::new());
    for listener in listeners {
        tokio::spawn(listen(listener, Arc::clone(&site), Arc::clone(&places)));
    }
    std::future::pending::<()>().await;
}

async fn listen(listener: TcpListener, site: Arc<Site>, places: Arc<Places>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let place = places.take(from.ip());
                let (number, site) = (place.number(), Arc::clone(&site));
                let task = tokio::spawn(async move {
                    let _ =
                        time::timeout(PATIENCE_FOR_ALL, meet(stream, &site, (&Arc::new(place), from.ip())))
                            .await;
                });
                places.belongs_to(number, task.abort_handle());
            }
            Err(_) => {
                places.make_room();
                time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves a connection, encrypted or not. A client that goes away is ignored.
async fn meet(stream: TcpStream, site: &Arc<Site>, client: (&Arc<Place>, IpAddr)) {
    let web = site.web();
    match &web.tls {
        None => talk(stream, site, &web, client).await,
        Some(tls) => {
            let accepted = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
            if let Ok(Ok(stream)) = time::timeout(PATIENCE, accepted).await {
                talk(stream, site, &web, client).await;
            }
        }
    }
}

/// Serves one request.
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    site: &Arc<Site>,
    web: &Arc<Web>,
    (place, from): (&Arc<Place>, IpAddr),
) {
    let service = service_fn(|request| {
        let (site, web, place) = (Arc::clone(site), Arc::clone(web), Arc::clone(place));
        async move { Ok::<_, Infallible>(site.answer(&request, &web, (&place, from)).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(REQUEST_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}
