//! Header blocks: names and values, compressed with the dictionary of SPDY/3. Each direction of a connection has one
//! compressor.
//!
//! An invalid block breaks the whole connection, because later blocks depend on the state of the compressor.

use super::Flaw;
use bytes::{BufMut, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::sync::LazyLock;

/// The maximum number of bytes of a frame's decompressed header block. Kubernetes' blocks are below a kilobyte.
pub const HEADER_BYTES_MAX: usize = 64 << 10;
/// The maximum number of headers in a block.
pub const HEADERS_MAX: usize = 128;

/// The headers of a stream. Names are in lower case; several values of a name are separated by a zero byte, as on the
/// wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    pub fn new() -> Headers {
        Headers::default()
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Headers {
        self.0.push((name.to_ascii_lowercase(), value.into()));
        self
    }

    /// The first value of the header with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        value.split('\0').next()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// The names at the start of the dictionary; each follows its length in four bytes.
const NAMES: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
keep-alive origin";

/// The part of the dictionary after the names.
const REST: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not \
Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov \
Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,\
application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,\
utf-,*,enq=0.";

static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dictionary = Vec::new();
    for name in NAMES.split(' ') {
        let name = name.replace('_', " ");
        dictionary.put_u32(length(name.len()));
        dictionary.extend_from_slice(name.as_bytes());
    }
    dictionary.extend_from_slice(REST.as_bytes());
    dictionary
});

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Compresses the blocks that one side sends.
pub struct Deflater(Compress);

impl Deflater {
    pub fn new() -> Deflater {
        let mut compress = Compress::new(Compression::fast(), true);
        // Setting the dictionary of a new compressor cannot fail.
        _ = compress.set_dictionary(&DICTIONARY);
        Deflater(compress)
    }

    /// Appends a block. The caller must keep the block within the size and the number of headers that the other side
    /// accepts. Otherwise the other side ends the connection.
    pub fn deflate(&mut self, headers: &Headers, output: &mut BytesMut) {
        let mut plain = BytesMut::new();
        plain.put_u32(length(headers.0.len()));
        for text in headers.0.iter().flat_map(|(name, value)| [name, value]) {
            plain.put_u32(length(text.len()));
            plain.put_slice(text.as_bytes());
        }
        let mut rest = &plain[..];
        let mut piece = [0; 4096];
        loop {
            let (taken, made) = (self.0.total_in(), self.0.total_out());
            let status = self.0.compress(rest, &mut piece, FlushCompress::Sync);
            let taken = usize::try_from(self.0.total_in() - taken).unwrap_or(rest.len());
            let made = usize::try_from(self.0.total_out() - made).unwrap_or(0);
            rest = &rest[taken.min(rest.len())..];
            output.put_slice(&piece[..made]);
            // The flush is complete when it leaves room in the output.
            if status.is_err() || (rest.is_empty() && made < piece.len()) {
                return;
            }
        }
    }
}

/// Decompresses the blocks that one side receives.
pub struct Inflater(Decompress);

impl Inflater {
    pub fn new() -> Inflater {
        Inflater(Decompress::new(true))
    }

    pub fn inflate(&mut self, mut block: &[u8]) -> Result<Headers, Flaw> {
        let mut plain = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let (taken, made) = (self.0.total_in(), self.0.total_out());
            let status = self.0.decompress(block, &mut piece, FlushDecompress::Sync);
            let taken = usize::try_from(self.0.total_in() - taken).unwrap_or(block.len());
            let made = usize::try_from(self.0.total_out() - made).unwrap_or(0);
            block = &block[taken.min(block.len())..];
            plain.extend_from_slice(&piece[..made]);
            if plain.len() > HEADER_BYTES_MAX {
                return Err(Flaw::LargeHeaders);
            }
            match status {
                Ok(Status::StreamEnd) => return Err(Flaw::Compression),
                // The input is used up, and the output has room left, so there is no more output.
                Ok(_) if block.is_empty() && made < piece.len() => break,
                Ok(_) if taken == 0 && made == 0 => return Err(Flaw::Compression),
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&DICTIONARY).map_err(|_| Flaw::Compression)?;
                }
                Err(_) => return Err(Flaw::Compression),
            }
        }
        read(&plain)
    }
}

fn read(plain: &[u8]) -> Result<Headers, Flaw> {
    let mut rest = plain;
    let count = number(&mut rest)?;
    if count > HEADERS_MAX {
        return Err(Flaw::LargeHeaders);
    }
    let mut headers = Headers::default();
    for _ in 0..count {
        let (name, value) = (text(&mut rest)?.to_ascii_lowercase(), text(&mut rest)?);
        if headers.0.iter().any(|(own, _)| *own == name) {
            return Err(Flaw::Headers);
        }
        headers.0.push((name, value));
    }
    if rest.is_empty() { Ok(headers) } else { Err(Flaw::Headers) }
}

fn number(rest: &mut &[u8]) -> Result<usize, Flaw> {
    let (number, after) = rest.split_first_chunk::<4>().ok_or(Flaw::Headers)?;
    *rest = after;
    usize::try_from(u32::from_be_bytes(*number)).map_err(|_| Flaw::Headers)
}

fn text(rest: &mut &[u8]) -> Result<String, Flaw> {
    let length = number(rest)?;
    let (text, after) = rest.split_at_checked(length).ok_or(Flaw::Headers)?;
    *rest = after;
    String::from_utf8(text.to_vec()).map_err(|_| Flaw::Headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adler-32, by which zlib identifies a dictionary.
    fn checksum(bytes: &[u8]) -> u32 {
        let (low, high) = bytes.iter().fold((1u32, 0u32), |(low, high), byte| {
            let low = (low + u32::from(*byte)) % 65521;
            (low, (high + low) % 65521)
        });
        high << 16 | low
    }

    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        assert_eq!((DICTIONARY.len(), checksum(&DICTIONARY)), (1423, 0xe3c6_a7c2));
    }

    #[test]
    fn blocks_lean_on_each_other() {
        let (mut deflater, mut inflater) = (Deflater::new(), Inflater::new());
        for at in 0..100 {
            let headers = Headers::new().with("streamType", "data").with("port", at.to_string()).with("empty", "");
            let mut block = BytesMut::new();
            deflater.deflate(&headers, &mut block);
            assert!(at == 0 || block.len() < 40, "later blocks are short");
            assert_eq!(inflater.inflate(&block), Ok(headers));
        }
    }

    #[test]
    fn what_grows_beyond_the_bound_is_refused() {
        let bomb = Headers::new().with("a", "b".repeat(100 << 20));
        let mut block = BytesMut::new();
        Deflater::new().deflate(&bomb, &mut block);
        assert_eq!(Inflater::new().inflate(&block), Err(Flaw::LargeHeaders));
        let many = (0..=HEADERS_MAX).fold(Headers::new(), |all, at| all.with(&format!("h{at}"), ""));
        let mut block = BytesMut::new();
        Deflater::new().deflate(&many, &mut block);
        assert_eq!(Inflater::new().inflate(&block), Err(Flaw::LargeHeaders));
    }

    #[test]
    fn large_headers_below_the_bound_pass() {
        let headers = Headers::new().with("a", "x1y2".repeat(15_000)).with("b", "z");
        let mut block = BytesMut::new();
        Deflater::new().deflate(&headers, &mut block);
        assert_eq!(Inflater::new().inflate(&block), Ok(headers));
    }

    #[test]
    fn rubbish_is_refused() {
        assert_eq!(Inflater::new().inflate(b"rubbish"), Err(Flaw::Compression));
        let twice = Headers(vec![("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
        let mut block = BytesMut::new();
        Deflater::new().deflate(&twice, &mut block);
        assert_eq!(Inflater::new().inflate(&block), Err(Flaw::Headers));
        assert_eq!(read(&[0, 0, 0, 1, 255, 255, 255, 255]), Err(Flaw::Headers));
        assert_eq!(read(&[0, 0, 0, 0, 1]), Err(Flaw::Headers));
    }
}
