//! Lists in the form that the client accepts; most are made while they are sent.

use crate::respond::{self, Encoding, Form, JSON, PIECE_BYTES, PROTOBUF, Response, Shape, form};
use bytes::Bytes;
use holdfast_core::kinds::Kind;
use holdfast_core::list::Page;
use holdfast_core::object::Body;
use holdfast_core::state::Entry;
use holdfast_core::wire::protobuf;
use holdfast_core::wire::table::{self, ListMeta};
use holdfast_value::json;
use std::ops::Range;
use std::sync::Arc;

/// The maximum work for the cells of one piece of a table. Between two pieces the connection can serve other requests.
const PIECE_LOOKS_MAX: usize = 100_000;

/// The fields of a list without its items.
#[derive(Debug, Clone, Default)]
pub struct Head {
    pub continue_token: String,
    /// The path of the list; empty when `selfLink` is off.
    pub self_link: String,
}

/// Makes the response with a list, in the form that the client accepts.
pub fn list(kind: &Arc<Kind>, version: usize, page: Page, head: &Head, shape: Shape, now: i64) -> Response {
    let resource_version = page.offset.to_string();
    let bytes: usize = page.entries.iter().map(|entry| entry.size()).sum();
    let piece = piece_bytes(&page.entries);
    if let Form::Table(meta, include) = shape.form {
        let list = ListMeta {
            resource_version: &resource_version,
            continue_token: &head.continue_token,
            remaining_item_count: page.remaining.map(|count| count as i64),
        };
        let form = table::Form { version: meta, include, headers: true };
        let (rows, begin) = table::Rows::begin(kind.shown(version), now, form, &list);
        let mut pieces =
            Table { kind: kind.clone(), version, entries: page.entries, links: shape.links, rows }.pieces(begin);
        if !shape.is_raw() {
            return respond::bytes(200, pieces.collect::<Vec<_>>().concat().into(), shape);
        }
        let first = pieces.next().unwrap_or_default();
        return match pieces.next() {
            None => respond::bytes(200, first, shape),
            Some(second) => {
                let size = bytes.max(first.len() + second.len());
                // A row with its cells may be twice as large as its object, because cells may contain a large part of
                // an object.
                respond::counted([first, second].into_iter().chain(pieces), 2 * piece, size, JSON, shape.gzip)
            }
        };
    }
    if shape.form == Form::Object
        && shape.encoding == Encoding::Protobuf
        && !shape.links
        && let Some(messages) = protobuf_list(kind, version, &page, head)
    {
        let size = messages.size;
        return respond::counted(messages.pieces(), piece, size, PROTOBUF, shape.gzip);
    }
    let (list_kind, api_version) = match shape.form {
        Form::Metadata(meta) => ("PartialObjectMetadataList".to_owned(), meta.api_version().to_owned()),
        _ => (kind.list_kind(), kind.versions[version].api_version()),
    };
    let mut start = format!("{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{");
    if !head.self_link.is_empty() {
        start.push_str(&format!("\"selfLink\":\"{}\",", head.self_link));
    }
    start.push_str(&format!("\"resourceVersion\":\"{resource_version}\""));
    if !head.continue_token.is_empty() {
        start.push_str(&format!(",\"continue\":\"{}\"", head.continue_token));
    }
    if let Some(remaining) = page.remaining {
        start.push_str(&format!(",\"remainingItemCount\":{remaining}"));
    }
    let is_partial = matches!(shape.form, Form::Metadata(_));
    if is_partial && page.entries.is_empty() {
        // Kubernetes makes this list from the objects; if there are no objects, `items` is `null`.
        start.push_str("},\"items\":null}\n");
        return respond::bytes(200, start.into(), shape);
    }
    start.push_str("},\"items\":[");
    let each = |convert: &dyn Fn(&Arc<Entry>) -> Body| Some(page.entries.iter().map(convert).collect());
    let converted = match shape.form {
        Form::Object
            if version == 0 && !shape.links && !page.entries.iter().any(|entry| kind.is_stale(entry.offset)) =>
        {
            None
        }
        Form::Object if !shape.links => each(&|entry| entry.body_in(kind, version)),
        _ => each(&|entry| form(kind, version, entry, shape, now, false).into()),
    };
    // In Go's lists of unstructured objects each item has `apiVersion` and `kind`.
    let whole = is_partial || kind.custom.is_some();
    let items = Items { head: start.into(), entries: page.entries, converted, whole };
    let size = items.size();
    if !shape.is_raw() {
        return respond::bytes(200, items.join(), shape);
    }
    // Items that were made for this list alone stay in memory until the list is sent.
    let own = match &items.converted {
        Some(_) if is_partial => size,
        Some(_) => piece,
        None => 0,
    };
    respond::counted(items.pieces(), own, size, JSON, shape.gzip)
}

/// The size of the largest object that is larger than a piece; zero if there is none. The piece that contains such an
/// object exceeds the usual size.
fn piece_bytes(entries: &[Arc<Entry>]) -> usize {
    entries.iter().map(|entry| entry.size()).filter(|bytes| *bytes > PIECE_BYTES).max().unwrap_or_default()
}

/// A Table that is made while it is sent.
struct Table {
    kind: Arc<Kind>,
    version: usize,
    entries: Vec<Arc<Entry>>,
    links: bool,
    rows: table::Rows,
}

impl Table {
    /// The table in pieces. Each piece is made when the piece before it has been sent.
    fn pieces(mut self, begin: Vec<u8>) -> impl Iterator<Item = Bytes> + Send + Sync + 'static {
        let mut begin = Some(begin);
        let mut next = 0;
        std::iter::from_fn(move || {
            let mut piece = begin.take().or_else(|| (next < self.entries.len()).then(Vec::new))?;
            let looked = self.rows.looked;
            while next < self.entries.len() && piece.len() < PIECE_BYTES && self.rows.looked - looked < PIECE_LOOKS_MAX
            {
                let entry = &self.entries[next];
                let served = respond::served(&self.kind, self.version, entry, self.links);
                let source = respond::source(&self.kind, entry, served);
                self.rows.put(&mut piece, self.kind.shown(self.version), &source);
                next += 1;
            }
            if next == self.entries.len() {
                piece.extend_from_slice(table::END);
            }
            Some(Bytes::from(piece))
        })
    }
}

/// The list made of its items' Protobuf messages; `None` if an item has no Protobuf form.
fn protobuf_list(kind: &Kind, version: usize, page: &Page, head: &Head) -> Option<Messages> {
    let codec = protobuf::codec();
    let api_version = kind.versions[version].api_version();
    let message = codec.list_of(codec.find(&api_version, &kind.kind)?)?;
    let items: Vec<Body> =
        page.entries.iter().map(|entry| entry.message_in(kind, version)).collect::<Option<Vec<_>>>()?;
    let metadata = json!({
        "resourceVersion": page.offset.to_string(),
        "continue": head.continue_token,
        "remainingItemCount": page.remaining,
    });
    let list = json!({"kind": format!("{}List", kind.kind), "apiVersion": api_version, "metadata": metadata});
    let size = items.iter().map(|item| protobuf::item_size(item.len())).sum();
    let start = protobuf::list_start(codec, message, &list, size).ok()?;
    Some(Messages { size: start.len() + size, start, number: codec.items_number(message), items })
}

/// A list in Protobuf that is made while it is sent.
struct Messages {
    start: Vec<u8>,
    /// The number of the Protobuf field that holds the list's items.
    number: u32,
    items: Vec<Body>,
    /// The size of the whole list in bytes.
    size: usize,
}

impl Messages {
    fn pieces(self) -> impl Iterator<Item = Bytes> + Send + Sync + 'static {
        let mut next = 0;
        let mut start = Some(self.start);
        std::iter::from_fn(move || {
            let mut piece = start.take().or_else(|| (next < self.items.len()).then(Vec::new))?;
            piece.reserve(PIECE_BYTES + (8 << 10));
            while next < self.items.len() && piece.len() < PIECE_BYTES {
                protobuf::list_item(&mut piece, self.number, &self.items[next].bytes());
                next += 1;
            }
            if next == self.items.len() {
                piece.extend_from_slice(&protobuf::LIST_END);
            }
            Some(Bytes::from(piece))
        })
    }
}

/// A list in JSON that is made while it is sent, sliced from the stored bytes of its items.
struct Items {
    head: Bytes,
    entries: Vec<Arc<Entry>>,
    /// Items that differ from the stored bytes, for other versions and forms.
    converted: Option<Vec<Body>>,
    /// Whether items in the list keep their `apiVersion` and `kind`.
    whole: bool,
}

impl Items {
    fn push(&self, index: usize, out: &mut Vec<u8>) {
        if index > 0 {
            out.push(b',');
        }
        match &self.converted {
            Some(converted) if self.whole => converted[index].append(0..converted[index].len(), out),
            Some(converted) => {
                out.push(b'{');
                out.extend_from_slice(Entry::item(&converted[index].bytes()));
            }
            None => {
                let entry = &self.entries[index];
                if !self.whole {
                    out.push(b'{');
                }
                entry.body().append(self.stored(entry), out);
            }
        }
    }

    /// The range of an item's stored bytes that a list sends: all bytes if items are sent whole, otherwise the bytes
    /// from `metadata` on, without the newline at the end.
    fn stored(&self, entry: &Entry) -> Range<usize> {
        if self.whole { 0..entry.size() } else { entry.hub_item() }
    }

    fn size(&self) -> usize {
        let items: usize = match &self.converted {
            Some(converted) => converted.iter().map(Body::len).sum(),
            None => self.entries.iter().map(|entry| entry.size()).sum(),
        };
        self.head.len() + items + self.entries.len() + 8
    }

    fn join(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.size());
        out.extend_from_slice(&self.head);
        (0..self.entries.len()).for_each(|index| self.push(index, &mut out));
        out.extend_from_slice(b"]}\n");
        out.into()
    }

    /// The list in pieces. Each piece is made when the piece before it has been sent. A large item is a piece of its
    /// own, in its stored form, so that nothing is copied for a client that does not read.
    fn pieces(self) -> impl Iterator<Item = Bytes> + Send + Sync + 'static {
        let mut next = 0;
        let mut ended = false;
        let mut large: Option<Bytes> = None;
        std::iter::from_fn(move || {
            if large.is_some() {
                return large.take();
            }
            if ended {
                return None;
            }
            let mut piece = Vec::with_capacity(PIECE_BYTES + (8 << 10));
            if next == 0 {
                piece.extend_from_slice(&self.head);
            }
            while next < self.entries.len() && piece.len() < PIECE_BYTES && large.is_none() {
                large = self.large(next);
                match &large {
                    Some(_) => {
                        piece.extend_from_slice(if next > 0 { b"," } else { b"" });
                        piece.extend_from_slice(if self.whole { b"" } else { b"{" });
                    }
                    None => self.push(next, &mut piece),
                }
                next += 1;
            }
            if next == self.entries.len() && large.is_none() {
                piece.extend_from_slice(b"]}\n");
                ended = true;
            }
            Some(Bytes::from(piece))
        })
    }

    /// The stored bytes of an item that is so large that it is a piece of its own.
    fn large(&self, index: usize) -> Option<Bytes> {
        let entry = self.entries.get(index).filter(|_| self.converted.is_none())?;
        let item = self.stored(entry);
        (item.len() > PIECE_BYTES).then(|| entry.json().slice(item))
    }
}
