//! The client's connection after its upgrade.

use crate::wire::Wire;
use holdfast_streams::Socket;
use hyper::upgrade::{OnUpgrade, Parts};
use hyper_util::rt::TokioIo;
use std::io::Cursor;
use std::time::Duration;
use tokio::io::{AsyncReadExt, join};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// How long a client may stop reading, for example because a pager shows the output page by page. In Kubernetes, a
/// stream may be idle for the same time.
const UNREAD_MAX: Duration = Duration::from_secs(4 * 3600);

/// Waits for the upgrade, and returns the upgraded connection.
pub async fn upgraded(upgrade: OnUpgrade) -> hyper::Result<Box<dyn Socket>> {
    Ok(match upgrade.await?.downcast::<TokioIo<Wire<TlsStream<TcpStream>>>>() {
        Ok(Parts { io, read_buf, .. }) => {
            let wire = io.into_inner();
            wire.allow_unread(UNREAD_MAX);
            Box::new(join(Cursor::new(read_buf).chain(wire.clone()), wire))
        }
        Err(other) => Box::new(TokioIo::new(other)),
    })
}
