//! A proxy between a client and a server that passes bytes on, delays them, or blocks them.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A proxy to one server on the loopback address, until it is dropped.
pub struct Proxy {
    port: u16,
    way: Arc<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    target: u16,
    /// Whether no bytes pass while connections stay open, as with an unplugged cable.
    is_silent: AtomicBool,
    /// Whether all connections are closed, and new connections are closed as soon as they are opened.
    is_closed: AtomicBool,
    has_ended: AtomicBool,
    delay_ms: AtomicU64,
    /// Members of etcd, by their ids, whose connections are blocked in both directions.
    cut_off: Mutex<HashSet<String>>,
    open: Mutex<Vec<TcpStream>>,
}

/// The id of the program that opened a connection, from its first request.
type Caller = Arc<OnceLock<String>>;

/// How often a blocked direction checks whether it is still blocked.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

impl Proxy {
    pub fn to(target: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let way = Arc::new(ProxyState { target, ..ProxyState::default() });
        let accepting = way.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.has_ended.load(Ordering::SeqCst) {
                    return;
                }
                accepting.connect(client);
            }
        });
        Proxy { port, way }
    }

    /// The URL of the proxy, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Blocks all data without closing connections.
    pub fn silence(&self) {
        self.way.is_silent.store(true, Ordering::SeqCst);
    }

    /// Blocks the connections that this member of etcd has opened to a peer.
    pub fn silence_member(&self, id: &str) {
        self.way.cut_off.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
    }

    /// Closes all connections, and from now on closes new connections as soon as they are opened.
    pub fn close(&self) {
        self.way.is_closed.store(true, Ordering::SeqCst);
        self.way.close_all();
    }

    /// Delays each piece of data in either direction.
    pub fn delay(&self, delay: Duration) {
        self.way.delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Lets all data and new connections pass again, without delay.
    pub fn heal(&self) {
        self.delay(Duration::ZERO);
        self.way.is_closed.store(false, Ordering::SeqCst);
        self.way.is_silent.store(false, Ordering::SeqCst);
        self.way.cut_off.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.way.has_ended.store(true, Ordering::SeqCst);
        self.way.close_all();
        // This connection wakes the accepting thread, which then ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl ProxyState {
    fn connect(self: &Arc<ProxyState>, client: TcpStream) {
        if self.is_closed.load(Ordering::SeqCst) {
            return;
        }
        // If the server does not listen, the client's connection is closed.
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.target)) else { return };
        let copies = [&client, &server, &client, &server].map(|stream| stream.try_clone().expect("a second handle"));
        let [one, other, kept_client, kept_server] = copies;
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            // Connections that are closed already are removed from the list.
            open.retain(|stream| stream.peer_addr().is_ok());
            open.extend([kept_client, kept_server]);
        }
        let caller = Caller::default();
        for (from, to, tells) in [(client, other, true), (server, one, false)] {
            let (way, caller) = (self.clone(), caller.clone());
            std::thread::spawn(move || way.pass(from, to, &caller, tells));
        }
    }

    /// Passes bytes on in one direction. If `tells` is true, the bytes begin with the caller's request.
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, caller: &Caller, tells: bool) {
        let mut piece = [0; 1 << 16];
        loop {
            let length = match from.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            if tells {
                caller.get_or_init(|| member_named_in(&piece[..length]));
            }
            std::thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::SeqCst)));
            while self.is_blocked(caller) && !self.has_ended.load(Ordering::SeqCst) {
                std::thread::sleep(LOOKS_EVERY);
            }
            if to.write_all(&piece[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    fn is_blocked(&self, caller: &Caller) -> bool {
        let is_cut_off = |id: &String| self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).contains(id);
        self.is_silent.load(Ordering::SeqCst) || caller.get().is_some_and(is_cut_off)
    }

    fn close_all(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The id of the member of etcd that sends this request to a peer; empty if the request contains no id.
fn member_named_in(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    let header = text.lines().find_map(|line| line.strip_prefix("X-Server-From: "));
    header.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut copy = stream.try_clone().unwrap();
                    std::io::copy(&mut stream, &mut copy)
                });
            }
        });
        port
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        stream
    }

    fn says(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
        stream.write_all(text)?;
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    #[test]
    fn a_proxy_lets_through_falls_silent_closes_and_heals() {
        let proxy = Proxy::to(echo());
        let mut stream = connect(&proxy);
        assert_eq!(says(&mut stream, b"one").unwrap(), b"one");
        proxy.silence();
        let silence = says(&mut stream, b"two").unwrap_err();
        assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
        proxy.heal();
        stream.set_read_timeout(None).unwrap();
        let mut late = [0; 3];
        stream.read_exact(&mut late).unwrap();
        assert_eq!(&late, b"two", "what came while it was silent comes after it");
        proxy.close();
        assert!(says(&mut stream, b"three").is_err(), "the connection is closed");
        assert!(says(&mut connect(&proxy), b"four").is_err(), "and new ones are");
        proxy.heal();
        assert_eq!(says(&mut connect(&proxy), b"five").unwrap(), b"five");
    }
}
