//! Announces writes to the engine when their requests arrive, before their tasks run, so that writes that arrive
//! together share a write to the disk.

use holdfast_engine::Engine;
use holdfast_engine::gather::Expected;
use http::Request;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::Service;

#[derive(Clone)]
pub struct Expecting<S> {
    pub service: S,
    pub engine: Arc<Engine>,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Expecting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Expected<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Expected<S::Future> {
        let is_safe = request.method().is_safe();
        let answer = self.service.call(request);
        if is_safe { Expected::nothing(answer) } else { self.engine.expect(answer) }
    }
}
