//! A running server's event log, behind the trait of a folder's log.

use super::client::{Client, RequestFailure, escaped};
use super::{Followed, Readable};
use anyhow::{Result, anyhow, bail};
use holdfast_core::event::{Offset, Record};
use holdfast_core::history::find::find;
use holdfast_core::kinds::registry;
use holdfast_engine::log::{Identity, Origin};
use holdfast_engine::{Fault, LogRead};
use holdfast_transport_http::log::{PATH, Unframed, WAIT_SECONDS_MAX};
use holdfast_value::Value;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard};

/// How many records are fetched together when the caller reads the first record that it has announced.
const AHEAD: usize = 64;
/// How many records are fetched at a time when the caller reads all records.
const PIECE: usize = 4096;
/// The maximum number of bytes that are fetched at a time.
const PIECE_BYTES: usize = 8 << 20;

pub struct RemoteLog {
    client: Client,
    /// The storage path of a kind whose objects are in another log than the main log. If it is set, this value reads
    /// that log.
    of: Option<String>,
    ahead: Mutex<Ahead>,
}

/// The next records to be read, in order. The records are fetched in pages.
#[derive(Default)]
struct Ahead {
    order: Vec<Offset>,
    places: BTreeMap<Offset, usize>,
    fetched: BTreeMap<Offset, Record>,
}

impl RemoteLog {
    /// Checks that the server has a log, and that the user may read the log.
    pub fn open(client: Client) -> Result<RemoteLog> {
        let log = RemoteLog { client, of: None, ahead: Mutex::default() };
        log.about().map_err(|failure| log.explained(failure))?;
        Ok(log)
    }

    /// The log that has the objects of these kinds, named as in kubectl. Custom kinds are in the main log.
    pub fn of(self, kinds: &[&str]) -> Result<RemoteLog> {
        let about = self.about().map_err(|failure| self.explained(failure))?;
        let apart = about["apart"].as_array().map(Vec::as_slice).unwrap_or_default();
        let log_of = |kind: &&str| {
            let storage = &registry().get(find(registry(), kind).ok()?).storage.path;
            let is_in = |kinds: &&Value| kinds.as_array().is_some_and(|kinds| kinds.iter().any(|one| one == storage));
            apart.iter().find(is_in)?[0].as_str()
        };
        let mut logs: Vec<Option<&str>> = kinds.iter().map(log_of).collect();
        logs.dedup();
        match logs.as_slice() {
            [] => Ok(self),
            [of] => Ok(RemoteLog { of: of.map(str::to_owned), ..self }),
            _ => bail!("the events of {} are in different logs: name kinds of one", kinds.join(" and ")),
        }
    }

    /// The path of a request to the log.
    fn path(&self, rest: &str) -> String {
        let sign = if rest.contains('?') { '&' } else { '?' };
        match &self.of {
            Some(of) => format!("{PATH}{rest}{sign}of={}", escaped(of)),
            None => format!("{PATH}{rest}"),
        }
    }

    fn about(&self) -> Result<Value, RequestFailure> {
        let about = self.client.get(&self.path(""))?;
        if about["kind"] != "Log" {
            return Err(RequestFailure::Unanswered(anyhow!("{} is not a Holdfast server", self.client.server)));
        }
        Ok(about)
    }

    /// The error for a failure, with advice.
    fn explained(&self, failure: RequestFailure) -> anyhow::Error {
        let server = &self.client.server;
        match failure {
            RequestFailure::Refused(refused) if refused.code == 404 && server.contains("/at/") => anyhow!(
                "{server} shows the past, which has no log of its own: name the context of the present with --context"
            ),
            RequestFailure::Refused(refused) if refused.code == 404 => anyhow!(
                "{server} is not a Holdfast server, or an older one: it has no {PATH}. Name a Holdfast server with --kubeconfig or \
                 --context, or a data folder with --data-dir"
            ),
            RequestFailure::Refused(refused) if matches!(refused.code, 401 | 403) => anyhow!(
                "{server} does not let you read its log: {refused}. The log holds every object, secrets too: it takes \
                 the right to get {PATH} and what is below it, which the role cluster-admin has"
            ),
            failure => failure.into(),
        }
    }

    fn fault(&self, failure: RequestFailure) -> Fault {
        Fault::Unreadable { what: format!("{:#}", self.explained(failure)) }
    }

    fn number(&self, field: &str) -> Result<Offset, Fault> {
        let about = self.about().map_err(|failure| self.fault(failure))?;
        Ok(Offset(about[field].as_u64().unwrap_or(0)))
    }

    fn records(&self, query: &str, take: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut unframed = Unframed::default();
        let streamed = self.client.stream(&self.path(&format!("/{query}")), |bytes| {
            unframed.push(bytes);
            while let Some(record) = unframed.next_record()? {
                take(record)?;
            }
            Ok(())
        });
        let whole =
            streamed.and_then(|()| unframed.finish().map_err(|broken| RequestFailure::Unanswered(broken.into())));
        whole.map_err(|failure| match failure {
            RequestFailure::Unanswered(error) => {
                Fault::Unreadable { what: format!("the log of {}: {error:#}", self.client.server) }
            }
            failure => self.fault(failure),
        })
    }

    /// The next records, up to the maximum number of bytes.
    fn piece(&self, after: Offset) -> Result<Vec<Record>, Fault> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        let mut enough = false;
        let read = self.records(&format!("records?after={after}&limit={PIECE}"), &mut |record| {
            bytes += record.encoded_bytes();
            records.push(record);
            enough = bytes >= PIECE_BYTES;
            // The rest of the answer is dropped; the next call requests it again.
            if enough { Err(read_only("read on")) } else { Ok(()) }
        });
        if enough { Ok(records) } else { read.map(|()| records) }
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl LogRead for RemoteLog {
    fn identity(&self) -> Result<Identity, Fault> {
        let about = self.about().map_err(|failure| self.fault(failure))?;
        let text = |value: &Value| value["id"].as_str().map(str::to_owned);
        let version = about["origin"]["version"].as_u64().map(Offset);
        let origin = version.map(|version| Origin { id: text(&about["origin"]), version });
        Ok(Identity { id: text(&about), origin })
    }

    fn last(&self) -> Result<Offset, Fault> {
        self.number("last")
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        let mut ahead = self.ahead();
        if let Some(record) = ahead.fetched.remove(&offset) {
            return Ok(Some(record));
        }
        let wanted: Vec<String> = match ahead.places.get(&offset) {
            Some(place) => ahead.order[*place..].iter().take(AHEAD).map(Offset::to_string).collect(),
            None => vec![offset.to_string()],
        };
        let mut fetched = BTreeMap::new();
        self.records(&format!("records?offsets={}", wanted.join(",")), &mut |record| {
            fetched.insert(record.offset(), record);
            Ok(())
        })?;
        let found = fetched.remove(&offset);
        ahead.fetched = fetched;
        Ok(found)
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        self.records("current", visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        let resource = resource.map(|resource| format!("&resource={}", escaped(resource))).unwrap_or_default();
        let mut records = Vec::new();
        self.records(&format!("records?after={after}&limit={limit}{resource}"), &mut |record| {
            records.push(record);
            Ok(())
        })?;
        Ok(records)
    }

    fn versions(&self, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
        let path = self.path(&format!("/versions?resource={}&key={}", escaped(resource), escaped(key)));
        let answer = self.client.get(&path).map_err(|failure| self.fault(failure))?;
        let versions = answer["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let versions: Vec<Offset> = versions.iter().filter_map(Value::as_u64).map(Offset).collect();
        self.will_read(&versions);
        Ok(versions)
    }

    fn each(&self, after: Offset, visit: &mut dyn FnMut(&Record) -> ControlFlow<()>) -> Result<(), Fault> {
        let mut after = after;
        loop {
            let records = self.piece(after)?;
            let Some(last) = records.last() else { return Ok(()) };
            after = last.offset();
            if records.iter().try_for_each(&mut *visit).is_break() {
                return Ok(());
            }
        }
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        self.number("oldest")
    }

    fn repaired(&self) -> Result<Offset, Fault> {
        self.number("repaired")
    }
}

impl Readable for RemoteLog {
    fn returns_decrypted(&self) -> bool {
        self.about().is_ok_and(|about| about["encrypted"] == true)
    }

    fn namespace(&self) -> &str {
        self.client.namespace()
    }

    fn will_read(&self, offsets: &[Offset]) {
        let places = offsets.iter().enumerate().map(|(place, offset)| (*offset, place)).collect();
        *self.ahead() = Ahead { order: offsets.to_vec(), places, fetched: BTreeMap::new() };
    }

    /// The server resolves the text, by its own clock.
    fn named(&self, text: &str, _: Timestamp) -> Result<Offset> {
        let path = self.path(&format!("/version?at={}", escaped(text)));
        let answer = self.client.get(&path).map_err(|failure| self.explained(failure))?;
        let version = answer["version"].as_u64();
        version.map(Offset).ok_or_else(|| anyhow!("{} answered {path} without a version", self.client.server))
    }
}

impl Followed for RemoteLog {
    fn follow(&self, after: Offset) -> Result<()> {
        Ok(self.records(&format!("records?after={after}&limit=0&wait={WAIT_SECONDS_MAX}"), &mut |_| Ok(()))?)
    }
}

fn read_only(operation: &'static str) -> Fault {
    Fault::io(operation, std::io::Error::new(std::io::ErrorKind::PermissionDenied, "it is read over the API"))
}
