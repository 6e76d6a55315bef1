//! OTLP collector over HTTP, to which pmbpf pushes.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

use flate2::read::MultiGzDecoder;

/// Heads and bodies of requests, as received.
pub(crate) type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// Collector that accepts everything and stores what it receives.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Requests,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let kept = Arc::clone(&requests);
        // The thread ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut head, mut line) = (String::new(), String::new());
                while reader.read_line(&mut line).unwrap() > 2 {
                    head.push_str(&line);
                    line.clear();
                }
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let mut body = vec![0; length.unwrap().parse().unwrap()];
                reader.read_exact(&mut body).unwrap();
                let mut plain = Vec::new();
                MultiGzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
                kept.lock().unwrap().push((head, plain));
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            }
        });
        Self { address, requests }
    }
}
