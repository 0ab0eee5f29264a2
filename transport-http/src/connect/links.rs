//! Rewrites the links of pages from servers within the cluster, so that they lead through this server, like the page's
//! own address.
//!
//! A page passes through piece by piece. Only an incomplete tag is held back, up to a bound. A larger tag, and content
//! other than HTML, passes unchanged.

use bytes::Bytes;
use flate2::write::{DeflateDecoder, GzDecoder};
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderMap, Uri, header};
use std::io::Write as _;

/// The maximum number of bytes of a tag whose links are rewritten.
const TAG_BYTES_MAX: usize = 64 << 10;
/// The number of bytes of a compressed page that are decompressed at a time. The decompressed bytes may be a thousand
/// times as many.
const COMPRESSED_BYTES: usize = 512;
/// Attributes that are links, each with the elements that have it.
const LINKS: &[(&str, &[&str])] = &[
    ("action", &["form"]),
    ("background", &["body"]),
    ("cite", &["blockquote", "del", "ins", "q"]),
    ("classid", &["object"]),
    ("codebase", &["applet", "object"]),
    ("data", &["object"]),
    ("formaction", &["button", "input"]),
    ("href", &["a", "area", "base", "link"]),
    ("icon", &["command"]),
    ("longdesc", &["frame", "iframe", "img"]),
    ("manifest", &["html"]),
    ("poster", &["video"]),
    ("profile", &["head"]),
    ("src", &["audio", "embed", "frame", "iframe", "img", "input", "script", "source", "track", "video"]),
    ("usemap", &["img", "input", "object"]),
];
/// The HTML elements whose content is text, even if the content looks like tags.
const TEXTS: [&str; 4] = ["script", "style", "textarea", "title"];

/// How the links in the pages of a server are rewritten.
#[derive(Debug, Clone)]
pub struct Way {
    /// The host and the port of the server that sent the page.
    pub authority: String,
    /// The client's name for this server, from the `Host` header of the request.
    pub host: String,
    /// The path on this server that stands for the root of the other server.
    pub prefix: String,
}

impl Way {
    /// The link, rewritten so that it leads to the same place through this server; `None` if the link is relative,
    /// leads to another host, or already leads through this server.
    pub fn lead_back(&self, link: &str) -> Option<String> {
        // Without a scheme, this parser finds no authority in `//host/path`.
        let (scheme, rest) = match link.strip_prefix("//") {
            Some(rest) => ("//", rest),
            None => match link.split_once("://") {
                Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                    (&link[..scheme.len() + 3], rest)
                }
                _ => ("", link),
            },
        };
        let (named, path) = match (scheme, rest.find(['/', '?', '#'])) {
            ("", _) => ("", rest),
            (_, Some(at)) => rest.split_at(at),
            (_, None) => (rest, ""),
        };
        let is_here = named == self.host;
        if !named.is_empty() && !is_here && named != self.authority || !path.starts_with('/') {
            return None;
        }
        let of_path = path.split(['?', '#']).next().unwrap_or_default();
        if of_path.strip_prefix(&self.prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return None;
        }
        let begin = if is_here { format!("{scheme}{named}") } else { String::new() };
        let led = format!("{begin}{}{path}", self.prefix);
        led.parse::<Uri>().is_ok().then_some(led)
    }
}

/// The compression of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Plain,
    Gzip,
    Deflate,
}

/// The compression of an answer's page; `None` if the answer is no page whose links can be rewritten.
pub fn page(headers: &HeaderMap) -> Option<Coding> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match text(header::CONTENT_ENCODING) {
        _ if kind != "text/html" => None,
        "" => Some(Coding::Plain),
        "gzip" => Some(Coding::Gzip),
        "deflate" => Some(Coding::Deflate),
        _ => None,
    }
}

/// The pieces of a page, uncompressed and with its links rewritten.
pub fn rewritten<S, E>(pieces: S, coding: Coding, way: Way) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    let begin = (pieces, Reader::new(coding), Some(Rewriter::new(way)), Bytes::new());
    stream::try_unfold(begin, move |(mut pieces, mut reader, rewriter, mut left)| async move {
        let Some(mut rewriter) = rewriter else { return Ok(None) };
        loop {
            if left.is_empty() {
                match pieces.next().await {
                    Some(piece) => left = piece.map_err(std::io::Error::other)?,
                    None => {
                        let plain = reader.end()?;
                        let mut out = rewriter.put(&plain);
                        out.extend(rewriter.end());
                        return Ok(Some((Bytes::from(out), (pieces, reader, None, left))));
                    }
                }
                continue;
            }
            let bytes =
                left.split_to(if coding == Coding::Plain { left.len() } else { left.len().min(COMPRESSED_BYTES) });
            let out = rewriter.put(&reader.read(&bytes)?);
            if !out.is_empty() {
                return Ok(Some((Bytes::from(out), (pieces, reader, Some(rewriter), left))));
            }
        }
    })
}

/// Decompresses the pieces of a page.
enum Reader {
    Plain,
    Gzip(GzDecoder<Vec<u8>>),
    Deflate(DeflateDecoder<Vec<u8>>),
}

impl Reader {
    fn new(coding: Coding) -> Reader {
        match coding {
            Coding::Plain => Reader::Plain,
            Coding::Gzip => Reader::Gzip(GzDecoder::new(Vec::new())),
            Coding::Deflate => Reader::Deflate(DeflateDecoder::new(Vec::new())),
        }
    }

    fn read(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        Ok(match self {
            Reader::Plain => bytes.to_vec(),
            Reader::Gzip(decoder) => {
                decoder.write_all(bytes)?;
                std::mem::take(decoder.get_mut())
            }
            Reader::Deflate(decoder) => {
                decoder.write_all(bytes)?;
                std::mem::take(decoder.get_mut())
            }
        })
    }

    fn end(&mut self) -> std::io::Result<Vec<u8>> {
        Ok(match self {
            Reader::Plain => Vec::new(),
            Reader::Gzip(decoder) => {
                decoder.try_finish()?;
                std::mem::take(decoder.get_mut())
            }
            Reader::Deflate(decoder) => {
                decoder.try_finish()?;
                std::mem::take(decoder.get_mut())
            }
        })
    }
}

/// Rewrites the links of a page that arrives in pieces.
struct Rewriter {
    way: Way,
    /// The beginning of a tag whose end has not arrived yet.
    held: Vec<u8>,
    /// The scanned length of `held`, and the quote that is open at that position.
    looked: (usize, Option<u8>),
    /// The mark that ends the text or comment in which the rewriter is; `None` outside of text and comments.
    until: Option<&'static str>,
}

impl Rewriter {
    fn new(way: Way) -> Rewriter {
        Rewriter { way, held: Vec::new(), looked: (0, None), until: None }
    }

    /// Takes a piece of the page. Returns the bytes that can be sent to the client now.
    fn put(&mut self, piece: &[u8]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::with_capacity(piece.len()), piece);
        while let Some((&byte, behind)) = rest.split_first() {
            if self.held.is_empty() {
                let at = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
                out.extend_from_slice(&rest[..at]);
                rest = &rest[at..];
                if let Some((&byte, behind)) = rest.split_first() {
                    self.held.push(byte);
                    self.looked = (1, None);
                    rest = behind;
                }
                continue;
            }
            // This byte begins a new tag, so the bytes before it are not part of a tag.
            if byte == b'<' && (self.until.is_some() || self.held.len() == 1) {
                out.append(&mut self.held);
                continue;
            }
            self.held.push(byte);
            rest = behind;
            self.look(&mut out);
        }
        out
    }

    fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Scans the last byte of `held`, and moves bytes that need no rewriting to `out`.
    fn look(&mut self, out: &mut Vec<u8>) {
        if let Some(until) = self.until {
            // Within text, only the end of the text matters.
            let known = self.held.len().min(until.len());
            if !self.held[..known].eq_ignore_ascii_case(&until.as_bytes()[..known]) {
                out.append(&mut self.held);
            } else if known == until.len() {
                self.until = None;
                out.append(&mut self.held);
            }
            return;
        }
        if self.held.starts_with(b"<!--") {
            if self.held.ends_with(b"-->") && self.held.len() >= 7 || self.held.len() > TAG_BYTES_MAX {
                out.append(&mut self.held);
            }
            return;
        }
        let (at, quote) = self.looked;
        let byte = self.held[at];
        let quote = match quote {
            Some(open) if open == byte => None,
            None if matches!(byte, b'"' | b'\'') && self.held[1].is_ascii_alphabetic() => Some(byte),
            open => open,
        };
        self.looked = (at + 1, quote);
        if byte == b'>' && quote.is_none() {
            let tag = std::mem::take(&mut self.held);
            match std::str::from_utf8(&tag) {
                Ok(text) => {
                    out.extend_from_slice(self.tag(text).as_bytes());
                }
                Err(_) => out.extend_from_slice(&tag),
            }
        } else if self.held.len() > TAG_BYTES_MAX || at == 1 && !is_begin(byte) {
            out.append(&mut self.held);
        }
    }

    /// Returns a whole tag with its links rewritten.
    fn tag(&mut self, tag: &str) -> String {
        let name_end =
            tag[1..].find(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>')).map_or(1, |at| at + 1);
        let name = tag[1..name_end].to_ascii_lowercase();
        if let Some(text) = TEXTS.iter().position(|text| *text == name) {
            self.until = Some(["</script", "</style", "</textarea", "</title"][text]);
        }
        let (mut out, mut at) = (tag[..name_end].to_owned(), name_end);
        while let Some((attribute, value)) = attribute(tag, at) {
            let is_link = LINKS.iter().any(|(link, elements)| {
                tag[attribute.clone()].eq_ignore_ascii_case(link) && elements.contains(&name.as_str())
            });
            let told = &tag[value.clone()];
            // `&amp;` stands for `&`; other character references stay as they are.
            let led = is_link.then(|| self.way.lead_back(told.trim())).flatten();
            out.push_str(&tag[at..value.start]);
            out.push_str(led.as_deref().unwrap_or(told));
            at = value.end;
        }
        out.push_str(&tag[at..]);
        out
    }
}

/// Whether a tag or a comment can begin with this byte after its bracket.
fn is_begin(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'/' | b'!' | b'?')
}

/// The first attribute with a value at or after a position in a tag: the ranges of its name and its value.
fn attribute(tag: &str, mut from: usize) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let bytes = tag.as_bytes();
    let skip = |mut at: usize, skipped: &dyn Fn(u8) -> bool| {
        while at < bytes.len() && skipped(bytes[at]) {
            at += 1;
        }
        at
    };
    loop {
        let begin = skip(from, &|byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'"' | b'\''));
        let end = skip(begin, &|byte| !byte.is_ascii_whitespace() && !matches!(byte, b'/' | b'>' | b'='));
        let equals = skip(end, &|byte| byte.is_ascii_whitespace());
        match bytes.get(equals)? {
            b'=' => {
                let value = skip(equals + 1, &|byte| byte.is_ascii_whitespace());
                let (value, close) = match bytes.get(value)? {
                    quote @ (b'"' | b'\'') => (value + 1, skip(value + 1, &|byte| byte != *quote)),
                    _ => (value, skip(value, &|byte| !byte.is_ascii_whitespace() && byte != b'>')),
                };
                return Some((begin..end, value..close));
            }
            b'>' => return None,
            // This attribute has no value.
            _ if equals > from => from = equals,
            _ => from += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder};
    use proptest::prelude::*;

    const PREFIX: &str = "/api/v1/namespaces/s/pods/p/proxy";

    fn way() -> Way {
        Way { authority: "10.0.0.1:80".into(), host: "api:6443".into(), prefix: PREFIX.into() }
    }

    fn whole(page: &[u8], piece: usize) -> Vec<u8> {
        let mut rewriter = Rewriter::new(way());
        let mut out: Vec<u8> = page.chunks(piece.max(1)).flat_map(|piece| rewriter.put(piece)).collect();
        out.extend(rewriter.end());
        out
    }

    #[test]
    fn links_lead_back_through_the_proxy() {
        let led = |rest: &str| Some(format!("{PREFIX}{rest}"));
        for (link, expected) in [
            ("/login?x=1", led("/login?x=1")),
            ("/", led("/")),
            ("http://10.0.0.1:80/a", led("/a")),
            ("//10.0.0.1:80/a", led("/a")),
            ("https://api:6443/a", Some(format!("https://api:6443{PREFIX}/a"))),
            ("http://elsewhere/a", None),
            ("//elsewhere/a", None),
            ("javascript:alert('/x')", None),
            ("a/b", None),
            ("#top", None),
            ("?page=2", None),
            ("", None),
            ("/api/v1/namespaces/s/pods/p/proxy/a", None),
            ("/api/v1/namespaces/s/pods/p/proxyful", led("/api/v1/namespaces/s/pods/p/proxyful")),
        ] {
            assert_eq!(way().lead_back(link), expected, "{link}");
        }
    }

    #[test]
    fn pages_are_rewritten() {
        for (page, expected) in [
            ("<a href=\"/x\">/x</a>", "<a href=\"@/x\">/x</a>"),
            ("<A class=b HREF=/x>", "<A class=b HREF=@/x>"),
            ("<img alt='a > b' src='/i.png' hidden/>", "<img alt='a > b' src='@/i.png' hidden/>"),
            ("<form action = \"/f\" method=post>", "<form action = \"@/f\" method=post>"),
            ("<div href=\"/x\">", "<div href=\"/x\">"),
            ("<!-- <a href=\"/x\"> --><a href=/y>", "<!-- <a href=\"/x\"> --><a href=@/y>"),
            (
                "<script src=\"/s.js\">if (a<b) '<a href=\"/x\">'</script><a href=/y>",
                "<script src=\"@/s.js\">if (a<b) '<a href=\"/x\">'</script><a href=@/y>",
            ),
            ("1 < 2 <<a href=\"/x\">", "1 < 2 <<a href=\"@/x\">"),
            ("<a href=\"/x", "<a href=\"/x"),
            ("<a\nhref\n=\n\"/ü\"é>", "<a\nhref\n=\n\"@/ü\"é>"),
            ("<!doctype html><link rel=x href=/c.css>", "<!doctype html><link rel=x href=@/c.css>"),
        ] {
            let expected = expected.replace('@', PREFIX);
            for piece in 1..=page.len() {
                assert_eq!(String::from_utf8_lossy(&whole(page.as_bytes(), piece)), expected, "by {piece}");
            }
        }
    }

    #[test]
    fn a_tag_that_never_ends_is_not_held() {
        let mut rewriter = Rewriter::new(way());
        let given = rewriter.put(&[&b"<a x=\""[..], &vec![b'y'; 3 * TAG_BYTES_MAX]].concat());
        assert!(given.len() > TAG_BYTES_MAX && rewriter.held.len() <= TAG_BYTES_MAX + 1);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(page in "[<>a-c=\"'/! \\-\n]{0,60}(<a href=/x>)?[<>/scriptyle\"']{0,20}", piece in 1usize..9) {
            prop_assert_eq!(whole(page.as_bytes(), piece), whole(page.as_bytes(), usize::MAX));
        }

        #[test]
        fn pages_without_links_stay_as_they_are(page in proptest::collection::vec(any::<u8>(), 0..200), piece in 1usize..50) {
            prop_assume!(!page.contains(&b'='));
            prop_assert_eq!(whole(&page, piece), page);
        }
    }

    #[tokio::test]
    async fn compressed_pages_are_read() {
        let page = "<a href=\"/x\">x</a>".repeat(2000);
        let (mut gzip, mut deflate) =
            (GzEncoder::new(Vec::new(), Compression::fast()), DeflateEncoder::new(Vec::new(), Compression::fast()));
        gzip.write_all(page.as_bytes()).unwrap();
        deflate.write_all(page.as_bytes()).unwrap();
        let plain = page.clone().into_bytes();
        for (coding, bytes) in [
            (Coding::Plain, plain),
            (Coding::Gzip, gzip.finish().unwrap()),
            (Coding::Deflate, deflate.finish().unwrap()),
        ] {
            let pieces: Vec<Result<Bytes, std::io::Error>> =
                bytes.chunks(100).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            let rewritten: Vec<_> = rewritten(stream::iter(pieces), coding, way()).collect().await;
            let text: Vec<u8> = rewritten.into_iter().flat_map(|piece| piece.expect("a piece").to_vec()).collect();
            assert_eq!(String::from_utf8(text).unwrap(), page.replace("\"/x", &format!("\"{PREFIX}/x")), "{coding:?}");
        }
    }
}
