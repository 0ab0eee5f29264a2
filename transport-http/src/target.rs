//! The request target must be a path. Other forms of HTTP/1.1 are refused here: `CONNECT host:port`, and a name without
//! a slash (`GET a`). The HTTP/2 code refuses such requests itself.

use crate::respond::{self, Response};
use futures_util::future::{Either, Ready, ready};
use http::{Method, Request};
use std::task::{Context, Poll};
use tower::Service;

/// A service that passes on only requests whose target is a path.
#[derive(Clone)]
pub struct PathsOnly<S> {
    pub service: S,
}

impl<S: Service<Request<B>, Response = Response>, B> Service<Request<B>> for PathsOnly<S> {
    type Response = Response;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match refusal(&request) {
            None => Either::Left(self.service.call(request)),
            Some(refusal) => Either::Right(ready(Ok(refusal))),
        }
    }
}

fn refusal<B>(request: &Request<B>) -> Option<Response> {
    if *request.method() == Method::CONNECT {
        return Some(respond::plain_error(405, "Method Not Allowed: this server is no tunnel"));
    }
    let names_path = request.uri().path_and_query().is_some();
    (!names_path).then(|| respond::plain_error(400, "Bad Request: the request line names no path"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_path_is_refused() {
        for (method, target, code) in [
            ("GET", "/", None),
            ("GET", "/a?b", None),
            ("GET", "https://a", None),
            ("GET", "https://a?b", None),
            ("OPTIONS", "*", None),
            ("GET", "a", Some(400)),
            ("GET", "a:1", Some(400)),
            ("GET", "[::1]:1", Some(400)),
            ("CONNECT", "a:1", Some(405)),
            ("CONNECT", "/a", Some(405)),
            ("CONNECT", "https://a/b", Some(405)),
        ] {
            let request = Request::builder().method(method).uri(target).body(()).expect("a request");
            let refused = refusal(&request).map(|response| response.status().as_u16());
            assert_eq!(refused, code, "{method} {target}");
        }
    }
}
