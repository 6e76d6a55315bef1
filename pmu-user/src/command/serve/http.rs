//! Listens, and gives what comes to whoever answers: on a thread of its own that holds no right at all, so that neither a slow client nor
//! a hostile one has anything to do with counting.

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

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
    time,
};
use tokio_rustls::TlsAcceptor;

use super::{answer::Answers, web::Web};
use crate::{
    command::output,
    session::{
        confine::{Duty, confine},
        runtime,
    },
};

/// Connections at a time; more wait.
const CONNECTIONS_MAX: usize = 64;
/// For how long a client may write its request.
const PATIENCE: Duration = Duration::from_secs(5);
/// For how long it may take for all of it, the answer included.
const PATIENCE_FOR_ALL: Duration = Duration::from_secs(30);
/// Bytes of a request.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// After an error that is not one of a connection: no files are left, most often.
const PAUSE: Duration = Duration::from_millis(200);

/// What answers, and to whom.
pub(super) struct Site {
    answers: Answers,
    web: Mutex<Arc<Web>>,
    /// Where that is written down.
    file: Option<PathBuf>,
}

impl Site {
    /// A site of these answers, for whom a web configuration admits, which is read again from its file.
    pub(super) fn new(answers: Answers, web: Web, file: Option<PathBuf>) -> Self {
        Self { answers, web: Mutex::new(Arc::new(web)), file }
    }

    /// Are connections encrypted?
    pub(super) fn is_encrypted(&self) -> bool {
        self.web().tls.is_some()
    }

    fn web(&self) -> Arc<Web> {
        Arc::clone(&self.web.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the web configuration again; one that cannot be read changes nothing.
    fn reload(&self) {
        let Some(file) = &self.file else { return };
        match Web::read(file) {
            Ok(web) => {
                *self.web.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(web);
                output::talk(&format!("{} is in force", file.display()));
            }
            Err(error) => output::talk(&format!("what was in force stays so: {error:#}")),
        }
    }
}

/// Sockets that listen at these addresses, each with where that is.
pub(super) fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Vec<(TcpListener, SocketAddr)>> {
    let bound = |address: &SocketAddr| {
        let every = [*address, (Ipv4Addr::UNSPECIFIED, address.port()).into()];
        // Every address of a host without IPv6 is one of IPv4.
        let listener =
            TcpListener::bind(&every[..if address.ip() == Ipv6Addr::UNSPECIFIED { 2 } else { 1 }])?;
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

/// What else is done by whoever answers.
pub(super) type Beside = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Answers from now on, and does what else is to be done meanwhile, until the process ends. The thread that calls has been confined.
pub(super) fn begin(listeners: Vec<TcpListener>, site: Site, beside: Vec<Beside>) -> anyhow::Result<()> {
    Builder::new().name("http".to_owned()).spawn(move || {
        confine(Duty::Answer);
        if let Ok(runtime) = runtime() {
            runtime.block_on(async {
                for task in beside {
                    tokio::spawn(task);
                }
                all(listeners, Arc::new(site)).await;
            });
        }
    })?;
    Ok(())
}

async fn all(listeners: Vec<TcpListener>, site: Arc<Site>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    for listener in listeners {
        tokio::spawn(listen(listener, Arc::clone(&site), Arc::clone(&room)));
    }
    // What a service is told when its files are to be read again; to others it says that their terminal is gone.
    match signal(SignalKind::hangup()) {
        Ok(mut hangup) => {
            while hangup.recv().await.is_some() {
                site.reload();
            }
        }
        Err(_) => std::future::pending().await,
    }
}

async fn listen(listener: TcpListener, site: Arc<Site>, room: Arc<Semaphore>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let site = Arc::clone(&site);
                tokio::spawn(async move {
                    let _ = time::timeout(PATIENCE_FOR_ALL, meet(stream, &site, from.ip())).await;
                    drop(place);
                });
            }
            Err(_) => time::sleep(PAUSE).await,
        }
    }
}

/// A connection, encrypted or not. Whoever goes away is no concern of ours.
async fn meet(stream: TcpStream, site: &Arc<Site>, from: IpAddr) {
    let web = site.web();
    match &web.tls {
        None => talk(stream, site, (&web, from)).await,
        Some(tls) => {
            let accepted = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
            if let Ok(Ok(stream)) = time::timeout(PATIENCE, accepted).await {
                talk(stream, site, (&web, from)).await;
            }
        }
    }
}

/// One request, and its answer.
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    site: &Arc<Site>,
    (web, from): (&Arc<Web>, IpAddr),
) {
    let service = service_fn(|request| {
        let answer = site.answers.to(&request, web, from);
        async move { Ok::<_, Infallible>(answer.made().await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(REQUEST_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}
