//! Answers to clients of simulated kubelets, in the wording of real kubelets.

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use std::convert::Infallible;

pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;
pub type KubeletResponse = Response<ResponseBody>;

fn made(code: StatusCode, content_type: &'static str, body: ResponseBody) -> KubeletResponse {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

pub fn whole(text: impl Into<Bytes>) -> ResponseBody {
    Full::new(text.into()).boxed_unsync()
}

/// An answer of plain text.
pub fn plain(code: StatusCode, text: impl Into<String>) -> KubeletResponse {
    made(code, "text/plain; charset=utf-8", whole(text.into()))
}

pub fn json(text: String) -> KubeletResponse {
    made(StatusCode::OK, "application/json", whole(text))
}

/// An answer that contains metrics in Prometheus' text format.
pub fn exposition(text: String) -> KubeletResponse {
    made(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", whole(text))
}

/// An error answer in plain text, as the kubelet's web service gives it.
pub fn fault(code: StatusCode, text: &str) -> KubeletResponse {
    made(code, "text/plain; charset=utf-8", whole(text.to_owned()))
}

/// An answer whose body is sent piece by piece, as soon as each piece arrives.
pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> KubeletResponse {
    use futures_util::StreamExt;
    let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    made(StatusCode::OK, "text/plain", StreamBody::new(frames).boxed_unsync())
}
