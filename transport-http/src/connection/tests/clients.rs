//! The connection with an independent client: the crate h2.

use super::*;
use futures_util::future::{join_all, poll_fn};
use h2::client::{SendRequest, handshake};
use h2::{Reason, RecvStream};
use http::Method;
use std::time::Duration;

const QUICK: fn(&Request<()>) -> bool = |_| true;
const SLOW: fn(&Request<()>) -> bool = |_| false;
/// This time is longer than any deadline of these tests, so a missing deadline makes a test hang.
const LONG: Duration = Duration::from_secs(3600);

fn bounds() -> Bounds {
    Bounds { head: LONG, idle: LONG, ping_period: LONG, pong: LONG, unread: LONG, ..Bounds::default() }
}

async fn connect(far: DuplexStream, window: u32) -> SendRequest<Bytes> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(window.max(65_535));
    let (client, connection) = builder.handshake(far).await.unwrap();
    tokio::spawn(connection);
    client
}

fn request(method: Method, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("https://a{path}")).body(()).unwrap()
}

/// Reads a body to its end. Returns its bytes and its trailers.
async fn read(mut body: RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut read = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        read.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    Ok((read, body.trailers().await?))
}

async fn get(client: &SendRequest<Bytes>, path: &str) -> Result<Vec<u8>, h2::Error> {
    let mut client = client.clone().ready().await?;
    let (answer, _) = client.send_request(request(Method::GET, path), true)?;
    Ok(read(answer.await?.into_body()).await?.0)
}

/// Sends `pieces` pieces as a body while it reads the response.
async fn post(client: &SendRequest<Bytes>, path: &str, pieces: usize, size: usize) -> Vec<u8> {
    let mut client = client.clone().ready().await.unwrap();
    let (answer, mut body) = client.send_request(request(Method::POST, path), false).unwrap();
    let sending = async move {
        for number in 0..pieces {
            let mut piece = Bytes::from(vec![number as u8; size]);
            while !piece.is_empty() {
                body.reserve_capacity(piece.len());
                let room = poll_fn(|context| body.poll_capacity(context)).await.unwrap().unwrap();
                body.send_data(piece.split_to(room.min(piece.len())), false).unwrap();
            }
        }
        body.send_data(Bytes::new(), true).unwrap();
    };
    let (_, answered) = tokio::join!(sending, async { read(answer.await.unwrap().into_body()).await.unwrap() });
    answered.0
}

fn pieces(count: usize, size: usize) -> Vec<u8> {
    (0..count).flat_map(|number| vec![number as u8; size]).collect()
}

#[tokio::test]
async fn many_at_a_time() {
    for (is_quick, room) in [(QUICK, 1 << 20), (SLOW, 1 << 20), (SLOW, 50)] {
        let (far, served) = serve(room, is_quick, bounds());
        let client = connect(far, 1 << 20).await;
        for _ in 0..3 {
            let asked = (0..200).map(|number| {
                let client = &client;
                async move {
                    let size = number * 7 % 300;
                    assert_eq!(get(client, &format!("/bytes/3/{size}")).await.unwrap(), pieces(3, size));
                }
            });
            join_all(asked).await;
            rest().await;
            assert_eq!(served.alive.load(Ordering::SeqCst), 0);
        }
    }
}

#[tokio::test]
async fn large_bodies_both_ways_through_small_windows_and_pipes() {
    for (window, room) in [(65_535, 1 << 20), (1 << 24, 1 << 20), (100, 1 << 16), (20_000, 700)] {
        for is_quick in [QUICK, SLOW] {
            let (far, served) = serve(room, is_quick, bounds());
            let client = connect(far, window).await;
            let scale = if window < 1_000 { 10 } else { 1 };
            let (count, size) = (40, 30_000 / scale);
            let path = format!("/bytes/{count}/{size}");
            let (down, other, echoed) =
                tokio::join!(get(&client, &path), get(&client, &path), post(&client, "/echo", count, size));
            let expected = pieces(count, size);
            assert!(down.unwrap() == expected && other.unwrap() == expected && echoed == expected);
            let counted = post(&client, "/count", count, size).await;
            assert_eq!(counted, (expected.len() as u32).to_be_bytes());
            rest().await;
            assert_eq!(served.alive.load(Ordering::SeqCst), 0);
        }
    }
}

#[tokio::test]
async fn trailers_and_heads() {
    let (far, _served) = serve(1 << 20, SLOW, bounds());
    let client = connect(far, 65_535).await;
    let mut ready = client.clone().ready().await.unwrap();
    let (answer, _) = ready.send_request(request(Method::GET, "/bytes/2/100000"), true).unwrap();
    let answer = answer.await.unwrap();
    assert!(answer.headers().contains_key("date"));
    let (body, trailers) = read(answer.into_body()).await.unwrap();
    assert_eq!((body, &trailers.unwrap()["x-count"]), (pieces(2, 100_000), &http::HeaderValue::from_static("2")));
    // This request has a body with trailers.
    let mut ready = client.clone().ready().await.unwrap();
    let (answer, mut sent) = ready.send_request(request(Method::POST, "/count"), false).unwrap();
    sent.send_data("abc".into(), false).unwrap();
    sent.send_trailers(HeaderMap::from_iter([(http::header::ETAG, "x".parse().unwrap())])).unwrap();
    assert_eq!(read(answer.await.unwrap().into_body()).await.unwrap().0, 3u32.to_be_bytes());
    // These responses have a head without a body.
    for (method, path) in [(Method::HEAD, "/bytes/5/5"), (Method::GET, "/nothing")] {
        let mut ready = client.clone().ready().await.unwrap();
        let (answer, _) = ready.send_request(request(method, path), true).unwrap();
        assert_eq!(read(answer.await.unwrap().into_body()).await.unwrap(), (vec![], None));
    }
}

#[tokio::test]
async fn resets_at_every_point_leave_nothing_behind() {
    for is_quick in [QUICK, SLOW] {
        let (far, served) = serve(4_000, is_quick, bounds());
        let client = connect(far, 10_000).await;
        for path in ["/never", "/watch", "/bytes/100/1000", "/bytes/3/100000", "/echo", "/count"] {
            for steps in 0..12 {
                let mut ready = client.clone().ready().await.unwrap();
                let (answer, mut body) = ready.send_request(request(Method::POST, path), false).unwrap();
                let mut answer = Box::pin(answer);
                for step in 0..steps {
                    tokio::task::yield_now().await;
                    match step {
                        3 => body.send_data(vec![0; 500].into(), false).unwrap_or_default(),
                        6 => drop(futures_util::FutureExt::now_or_never(&mut answer)),
                        _ => {}
                    }
                }
                body.send_reset(Reason::CANCEL);
                drop((answer, body));
            }
        }
        assert_eq!(get(&client, "/number").await.unwrap(), [0; 4]);
        rest().await;
        assert_eq!(served.alive.load(Ordering::SeqCst), 0, "whoever asked is gone");
    }
}

#[tokio::test]
async fn a_client_that_goes_takes_everything_with_it() {
    let (far, served) = serve(1 << 16, SLOW, bounds());
    let (mut client, connection) = handshake(far).await.unwrap();
    let connection = tokio::spawn(connection);
    let asked: Vec<_> = ["/never", "/watch", "/bytes/1000/1000", "/echo"]
        .map(|path| client.send_request(request(Method::POST, path), false).unwrap())
        .into();
    rest().await;
    assert_eq!(served.alive.load(Ordering::SeqCst), 4);
    connection.abort();
    drop(asked);
    let _ = served.connection.await.unwrap();
    rest().await;
    assert_eq!(served.alive.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_fault_ends_one_request() {
    for is_quick in [QUICK, SLOW] {
        let (far, _served) = serve(1 << 16, is_quick, bounds());
        let client = connect(far, 65_535).await;
        for path in ["/panic", "/panic/later"] {
            let failed = get(&client, path).await.unwrap_err();
            assert_eq!(failed.reason(), Some(Reason::INTERNAL_ERROR));
        }
        assert_eq!(get(&client, "/number").await.unwrap(), [0; 4]);
    }
}

#[tokio::test]
async fn a_body_that_nobody_reads_stops_at_its_window_and_no_other() {
    let (far, served) = serve(1 << 16, SLOW, bounds());
    let client = connect(far, 65_535).await;
    let mut ready = client.clone().ready().await.unwrap();
    let (answer, mut body) = ready.send_request(request(Method::POST, "/never"), false).unwrap();
    rest().await;
    let mut sent = 0;
    loop {
        body.reserve_capacity(1 << 20);
        rest().await;
        match body.capacity() {
            0 => break,
            room => body.send_data(vec![0; room].into(), false).unwrap(),
        }
        sent += 1;
    }
    assert!(sent > 0);
    // Other streams must be able to use the rest of the connection's window.
    let counted = post(&client, "/count", 30, 100_000).await;
    assert_eq!(counted, 3_000_000u32.to_be_bytes());
    drop((answer, body));
    rest().await;
    assert_eq!(served.alive.load(Ordering::SeqCst), 0);
    // Other streams must be able to use the connection's whole window when that stream no longer exists.
    let counted = post(&client, "/count", 30, 100_000).await;
    assert_eq!(counted, 3_000_000u32.to_be_bytes());
}

#[tokio::test]
async fn whoever_is_there_is_answered_before_the_end() {
    let (far, served) = serve(1 << 16, SLOW, bounds());
    let client = connect(far, 65_535).await;
    let mut ready = client.clone().ready().await.unwrap();
    let (answer, _) = ready.send_request(request(Method::GET, "/watch"), true).unwrap();
    let mut watch = answer.await.unwrap().into_body();
    assert_eq!(watch.data().await.unwrap().unwrap(), [0; 4][..]);
    served.stop.send_replace(true);
    rest().await;
    assert!(get(&client, "/number").await.is_err(), "nobody more is let in");
    served.events.send_replace(7);
    assert_eq!(watch.data().await.unwrap().unwrap(), 7u32.to_be_bytes()[..]);
    assert!(!served.connection.is_finished());
    drop(served.events);
    // The test has dropped the source of numbers, so the body must end. It may end with an empty piece.
    assert!(watch.data().await.is_none_or(|end| end.unwrap().is_empty()) && watch.is_end_stream());
    assert!(served.connection.await.unwrap().is_ok());
}
