//! The body of a request, over HTTP/1.1 or HTTP/2.

use crate::connection::upload::Download;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll};

pub enum Received {
    Http1(Incoming),
    Http2(Download),
    Nothing,
}

impl Received {
    pub fn nothing() -> Received {
        Received::Nothing
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Received::Http1(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Received::Http2(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Received::Nothing => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Received::Http1(body) => body.is_end_stream(),
            Received::Http2(body) => body.is_end_stream(),
            Received::Nothing => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Received::Http1(body) => body.size_hint(),
            Received::Http2(body) => body.size_hint(),
            Received::Nothing => SizeHint::with_exact(0),
        }
    }
}
