//! How often a connection writes, counted on its stream.

use super::*;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};

const STREAMS: usize = 40;

/// A connection to a server that sends every number of `events` in each watch.
struct Fixture {
    client: SendRequest<Empty<Bytes>>,
    served: Served,
}

impl Fixture {
    async fn start(is_quick: fn(&Request<()>) -> bool) -> Fixture {
        let (far, served) = serve(1 << 20, is_quick, Bounds::default());
        let io = TokioIo::new(far);
        let (client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let mut fixture = Fixture { client, served };
        fixture.ask("/number").await;
        fixture
    }

    /// Makes `STREAMS` requests at once, and reads the first number of every response.
    async fn ask(&mut self, path: &str) -> Vec<Incoming> {
        let request = || Request::get(format!("https://a{path}")).body(Empty::new()).unwrap();
        let asked: Vec<_> = (0..STREAMS).map(|_| self.client.send_request(request())).collect();
        let mut bodies: Vec<_> = join_all(asked).await.into_iter().map(|answer| answer.unwrap().into_body()).collect();
        assert_eq!(numbers(&mut bodies).await, [0; STREAMS]);
        rest().await;
        bodies
    }

    fn writes(&self) -> usize {
        self.served.writes.swap(0, Ordering::Relaxed)
    }
}

/// Reads the next number from the body of each response.
async fn numbers(bodies: &mut [Incoming]) -> Vec<u32> {
    let next = bodies.iter_mut().map(|body| {
        body.frame().map(|frame| {
            let bytes = frame.unwrap().unwrap().into_data().unwrap();
            u32::from_be_bytes(bytes[..].try_into().unwrap())
        })
    });
    join_all(next).await
}

#[tokio::test]
async fn an_event_for_many_watches_goes_out_in_one_write() {
    for is_quick in [|_: &Request<()>| true, |_: &Request<()>| false] {
        let mut fixture = Fixture::start(is_quick).await;
        let mut bodies = fixture.ask("/watch").await;
        for number in 1..4 {
            rest().await;
            fixture.writes();
            fixture.served.events.send_replace(number);
            assert_eq!(numbers(&mut bodies).await, [number; STREAMS]);
            assert_eq!(fixture.writes(), 1);
        }
    }
}

/// The runtime has a single worker, which first runs the task that was woken last. Each worker of a larger runtime does
/// the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn answers_that_are_ready_together_go_out_in_one_write() {
    for is_quick in [|_: &Request<()>| true, |_: &Request<()>| false] {
        let task = tokio::spawn(async move {
            let mut fixture = Fixture::start(is_quick).await;
            fixture.writes();
            fixture.ask("/number").await;
            fixture.writes()
        });
        assert_eq!(task.await.unwrap(), 1);
    }
}

/// All requests wait for one event, as reads of a shared log do. Their responses must be sent in one write.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn answers_that_waited_together_go_out_in_one_write() {
    for is_quick in [|_: &Request<()>| true, |_: &Request<()>| false] {
        let task = tokio::spawn(async move {
            let mut fixture = Fixture::start(is_quick).await;
            let request = || Request::get("https://a/next").body(Empty::new()).unwrap();
            let asked: Vec<_> = (0..STREAMS).map(|_| fixture.client.send_request(request())).collect();
            let asked = tokio::spawn(join_all(asked));
            rest().await;
            fixture.writes();
            fixture.served.events.send_replace(1);
            let answers = asked.await.unwrap();
            let mut bodies: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().into_body()).collect();
            assert_eq!(numbers(&mut bodies).await, [1; STREAMS]);
            fixture.writes()
        });
        assert_eq!(task.await.unwrap(), 1);
    }
}
