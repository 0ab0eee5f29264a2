//! `holdfast bench`: measures how much an operation costs a Kubernetes API server.
//!
//! It works with any API server, over HTTP/2 with TLS. It reads the server's process time from `/proc`, because wall
//! time measures the client's work, too, if client and server run on one machine. For the same reason the client does
//! little work: it counts the bytes of bodies without parsing them. Start with [`run`]; `load.rs` is the measuring
//! loop, `operation.rs` and `fan_out.rs` define the measured operations.

mod access;
mod client;
mod fan_out;
mod ground;
mod load;
mod operation;
mod process;
mod report;
mod schedule;

#[cfg(test)]
mod fake;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use holdfast_core::object::duration;

use crate::access::Access;
use crate::client::Pool;
use crate::ground::{Ground, ObjectKind};
use crate::load::{LoadLimits, Tally};
use crate::process::Processes;
use crate::report::{Report, ReportRow};

/// The operations to measure, and the server.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The API server: https://HOST:PORT, or http:// for HTTP/2 without TLS [default: the server in the kubeconfig].
    #[arg(long)]
    pub server: Option<String>,
    /// Bearer token for the server.
    #[arg(long, conflicts_with = "client_certificate")]
    pub token: Option<String>,
    /// Client certificate, in PEM.
    #[arg(long, requires = "client_key")]
    pub client_certificate: Option<PathBuf>,
    /// Private key of the certificate in --client-certificate, in PEM.
    #[arg(long, requires = "client_certificate")]
    pub client_key: Option<PathBuf>,
    /// Kubeconfig whose current context has the server, its CA and the credentials; other options override it.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// CA certificate for the server, in PEM.
    #[arg(long, conflicts_with = "insecure")]
    pub ca: Option<PathBuf>,
    /// Accept any server certificate.
    #[arg(long)]
    pub insecure: bool,
    /// Ids of the server's processes, whose costs are measured and added up (for example kube-apiserver and etcd).
    #[arg(long, value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Number of HTTP/2 connections that the workers share.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: u16,
    /// Number of requests in flight; lists use at most four.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: u16,
    /// How long each mode runs, such as 500ms, 10s or 2m. With --count, the time after which a mode ends in any case
    /// [default with --count: 10m].
    #[arg(long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Number of operations in each mode, instead of a duration.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Number of objects that exist before `list` and `page` start.
    #[arg(long, default_value_t = 35_000)]
    pub objects: u64,
    /// Create this many objects before the first mode, even if no mode needs them.
    #[arg(long, default_value_t = 0)]
    pub fill: u64,
    /// Number of open watches in `watch` and `watch-all`.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub watchers: u32,
    /// Number of connections that the watches share.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub watch_connections: u16,
    /// Number of nodes in the modes that schedule pods.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,
    /// Create objects of a custom resource instead of ConfigMaps, in all modes except `watch`, `watch-all` and `table`.
    #[arg(long)]
    pub custom: bool,
    /// Keep the namespace and its objects after the measurement.
    #[arg(long)]
    pub keep: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// The modes to run, in this order [default: all modes that need no scheduler].
    #[arg(value_enum)]
    pub modes: Vec<Mode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Create ConfigMaps of 0.6 KB.
    Create,
    /// Get one object.
    Get,
    /// Merge-patch one object.
    MergePatch,
    /// Server-side apply that changes nothing.
    Apply,
    /// List all objects in one answer.
    List,
    /// List all objects in one answer, in Protobuf.
    ListProtobuf,
    /// List all objects in pages of 500.
    Page,
    /// Get one object as it was before most objects changed.
    PastGet,
    /// List all objects, as they were before most of them changed, in pages of 500.
    PastPage,
    /// List 500 pods as a Table.
    Table,
    /// Create CustomResourceDefinitions, each in its own group.
    Define,
    /// Open many watches; each event goes to one of them.
    Watch,
    /// Open many watches; each event goes to all of them.
    WatchAll,
    /// Open many watches in Protobuf; each event goes to all of them.
    WatchAllProtobuf,
    /// Open many watches; 50 events a second, each of which goes to all watches.
    WatchAllPaced,
    /// Schedule pods that request only CPU and memory; 10,000 unless --count is given.
    Schedule,
    /// Schedule pods with required affinity by region.
    ScheduleAffinity,
    /// Schedule pods with required anti-affinity by host, one pod on each node.
    ScheduleAntiAffinity,
    /// Schedule pods with preferred affinity by host.
    SchedulePreferred,
    /// Schedule pods that are spread over zones.
    ScheduleSpread,
    /// Schedule pods that must each preempt other pods, one on each node.
    SchedulePreempt,
}

/// Measures every mode that `args` names and prints the result. Without `--keep`, the namespace is deleted at the end,
/// also after a failure or Ctrl-C.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let report = measure(&args).await?;
    print!("{}", if args.json { report.json() } else { report.table() });
    anyhow::ensure!(report.rows.iter().any(|row| row.count > 0), "no operation succeeded");
    Ok(())
}

async fn measure(args: &Args) -> anyhow::Result<Report> {
    let access = Arc::new(Access::from_args(args)?);
    let processes = Processes::open(&args.pid)?;
    let pool = Pool::connect(&access, args.connections).await?;
    let resource = if args.custom { ObjectKind::Custom } else { ObjectKind::ConfigMap };
    let mut ground = Ground::prepare(pool.clone(), resource).await?;
    let bench = Bench { args, access, processes, pool };
    let measured = tokio::select! {
        measured = bench.all_modes(&mut ground) => measured,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    if !args.keep {
        ground.remove().await?;
    }
    Ok(Report { server: bench.access.url(), rows: measured? })
}

struct Bench<'a> {
    args: &'a Args,
    access: Arc<Access>,
    processes: Processes,
    pool: Pool,
}

/// The maximum number of workers for lists. Lists are expensive: with more workers, only a queue would be measured.
const LIST_WORKERS_MAX: u16 = 4;
/// Gets and patches choose among at least this many objects, so that they do not depend on one hot key.
const TARGETS_MIN: u64 = 1_000;
const DURATION_DEFAULT: Duration = Duration::from_secs(10);
const DURATION_WITH_COUNT: Duration = Duration::from_secs(600);

impl Bench<'_> {
    async fn all_modes(&self, ground: &mut Ground) -> anyhow::Result<Vec<ReportRow>> {
        let mut rows = Vec::new();
        self.fill(ground, self.args.fill, &mut rows).await?;
        let mut past = String::new();
        let usual: Vec<Mode> =
            Mode::value_variants().iter().copied().filter(|mode| schedule::shape(*mode).is_none()).collect();
        let modes = if self.args.modes.is_empty() { &usual } else { &self.args.modes };
        for mode in modes {
            let objects = match mode {
                Mode::Get | Mode::MergePatch | Mode::Apply => TARGETS_MIN,
                Mode::List | Mode::ListProtobuf | Mode::Page | Mode::PastGet | Mode::PastPage => self.args.objects,
                Mode::Create | Mode::Table | Mode::Define | Mode::Watch => 0,
                Mode::WatchAll | Mode::WatchAllProtobuf | Mode::WatchAllPaced => 0,
                Mode::Schedule | Mode::ScheduleAffinity | Mode::ScheduleAntiAffinity => 0,
                Mode::SchedulePreferred | Mode::ScheduleSpread | Mode::SchedulePreempt => 0,
            };
            self.fill(ground, objects, &mut rows).await?;
            match mode {
                Mode::Apply => {
                    let resource = ground.resource();
                    self.prepare(ground.objects(), |client| operation::FirstApply(client, resource)).await?;
                }
                Mode::Table => self.prepare(operation::TABLE_PODS, operation::CreatePod).await?,
                Mode::PastGet | Mode::PastPage if past.is_empty() => {
                    past = operation::version(&self.pool.pick(0), ground.resource()).await?;
                    let (names, worker) = (ground.names(), std::cell::Cell::new(0));
                    let change = |client| operation::MergePatch::new(client, names, worker.replace(worker.get() + 1));
                    self.prepare(ground.objects(), change).await?;
                }
                _ => {}
            }
            eprintln!("measuring {} ...", mode_name(*mode));
            rows.push(self.one_mode(*mode, ground, &past).await?);
        }
        Ok(rows)
    }

    /// Creates objects until there are `objects`, and reports the cost.
    async fn fill(&self, ground: &mut Ground, objects: u64, rows: &mut Vec<ReportRow>) -> anyhow::Result<()> {
        let missing = objects.saturating_sub(ground.objects());
        if missing == 0 {
            return Ok(());
        }
        eprintln!("creating {missing} objects ...");
        let limits = LoadLimits { count: Some(missing), duration: DURATION_WITH_COUNT };
        let before = self.processes.usage()?;
        let tally = load::drive(self.args.workers, limits, |worker| {
            operation::Create::new(self.pool.pick(worker), ground.names())
        })
        .await;
        ground.created(tally.tickets);
        rows.push(ReportRow::new("fill", &tally, self.processes.since(before)?));
        anyhow::ensure!(tally.errors() == 0, "could not create the objects: {}", tally.errors_text());
        Ok(())
    }

    /// Runs an operation `count` times without measuring it.
    async fn prepare<O: load::Operation>(&self, count: u64, make: impl Fn(client::Client) -> O) -> anyhow::Result<()> {
        let limits = LoadLimits { count: Some(count), duration: DURATION_WITH_COUNT };
        let tally = load::drive(self.args.workers, limits, |worker| make(self.pool.pick(worker))).await;
        anyhow::ensure!(tally.errors() == 0, "could not prepare: {}", tally.errors_text());
        Ok(())
    }

    async fn one_mode(&self, mode: Mode, ground: &mut Ground, past: &str) -> anyhow::Result<ReportRow> {
        let few = self.args.workers.min(LIST_WORKERS_MAX);
        let workers = self.args.workers;
        let limits = self.limits();
        let pick = |worker| self.pool.pick(worker);
        if let Some(shape) = schedule::shape(mode) {
            return schedule::measure(self, mode_name(mode), mode, shape).await;
        }
        let before = self.processes.usage()?;
        let tally: Tally = match mode {
            Mode::Define => load::drive(workers, limits, |worker| operation::Define(pick(worker))).await,
            Mode::Create => {
                let names = ground.names();
                let tally = load::drive(workers, limits, |worker| operation::Create::new(pick(worker), names)).await;
                ground.created(tally.tickets);
                tally
            }
            Mode::Get | Mode::PastGet => {
                let names = ground.names();
                let at = if mode == Mode::PastGet { past } else { "" };
                load::drive(workers, limits, |worker| operation::Get::new(pick(worker), names, worker, at)).await
            }
            Mode::MergePatch => {
                let names = ground.names();
                load::drive(workers, limits, |worker| operation::MergePatch::new(pick(worker), names, worker)).await
            }
            Mode::Apply => {
                let names = ground.names();
                load::drive(workers, limits, |worker| operation::Apply::new(pick(worker), names, worker)).await
            }
            Mode::List => {
                load::drive(few, limits, |worker| operation::List::new(pick(worker), ground.resource())).await
            }
            Mode::ListProtobuf => {
                let list =
                    |worker| operation::List::new(pick(worker).accepting(operation::PROTOBUF), ground.resource());
                load::drive(few, limits, list).await
            }
            Mode::Table => load::drive(few, limits, |worker| operation::TableList::new(pick(worker))).await,
            Mode::Page | Mode::PastPage => {
                let at = if mode == Mode::PastPage { past } else { "" };
                load::drive(few, limits, |worker| operation::Page::new(pick(worker), ground.resource(), at)).await
            }
            Mode::Watch => return fan_out::measure(self, mode_name(mode), fan_out::Audience::One).await,
            Mode::WatchAll => return fan_out::measure(self, mode_name(mode), fan_out::Audience::All).await,
            Mode::WatchAllProtobuf => {
                return fan_out::measure(self, mode_name(mode), fan_out::Audience::AllInProtobuf).await;
            }
            Mode::WatchAllPaced => return fan_out::measure(self, mode_name(mode), fan_out::Audience::AllPaced).await,
            Mode::Schedule | Mode::ScheduleAffinity | Mode::ScheduleAntiAffinity => Tally::default(),
            Mode::SchedulePreferred | Mode::ScheduleSpread | Mode::SchedulePreempt => Tally::default(),
        };
        let mut row = ReportRow::new(mode_name(mode), &tally, self.processes.since(before)?);
        row.show_cost_per_megabyte = matches!(mode, Mode::List | Mode::ListProtobuf);
        Ok(row)
    }

    fn limits(&self) -> LoadLimits {
        let default = if self.args.count.is_some() { DURATION_WITH_COUNT } else { DURATION_DEFAULT };
        LoadLimits { count: self.args.count, duration: self.args.duration.unwrap_or(default) }
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Create => "create",
        Mode::Get => "get",
        Mode::MergePatch => "merge-patch",
        Mode::Apply => "apply",
        Mode::ListProtobuf => "list-protobuf",
        Mode::Table => "table",
        Mode::PastGet => "past-get",
        Mode::PastPage => "past-page",
        Mode::Define => "define",
        Mode::WatchAllProtobuf => "watch-all-protobuf",
        Mode::WatchAllPaced => "watch-all-paced",
        Mode::List => "list",
        Mode::Page => "page",
        Mode::Watch => "watch",
        Mode::WatchAll => "watch-all",
        Mode::Schedule => "schedule",
        Mode::ScheduleAffinity => "schedule-affinity",
        Mode::ScheduleAntiAffinity => "schedule-anti-affinity",
        Mode::SchedulePreferred => "schedule-preferred",
        Mode::ScheduleSpread => "schedule-spread",
        Mode::SchedulePreempt => "schedule-preempt",
    }
}

/// Parses a duration as Go does. Zero is refused, because nothing can be measured in that time.
fn parse_duration(text: &str) -> Result<Duration, String> {
    match duration::nanos(text)? {
        nanos @ 1.. => Ok(Duration::from_nanos(nanos.unsigned_abs())),
        _ => Err(format!("{text:?} is out of range")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Command::try_parse_from(words).map(|command| command.args).map_err(|error| error.to_string())
    }

    #[test]
    fn durations() {
        let table = [
            ("500ms", Some(500)),
            ("10s", Some(10_000)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("10", None),
            ("s", None),
            ("0s", None),
            ("-1s", None),
            ("1.5s", Some(1500)),
            ("99999999999999999999h", None),
            ("18446744073709551615m", None),
        ];
        for (text, milliseconds) in table {
            assert_eq!(parse_duration(text).ok(), milliseconds.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn options_and_modes() {
        let args =
            parse("--server https://h:1 --token t --insecure --pid 7,8 --count 5 merge-patch watch-all").unwrap();
        assert_eq!(args.pid, [7, 8]);
        assert_eq!(args.modes, [Mode::MergePatch, Mode::WatchAll]);
        assert_eq!((args.connections, args.workers, args.objects, args.watchers), (8, 32, 35_000, 1_000));
        for mode in Mode::value_variants() {
            assert_eq!(parse(mode_name(*mode)).unwrap().modes, [*mode]);
        }
    }

    #[test]
    fn senseless_options_are_refused() {
        for line in
            ["--workers 0", "--connections 0", "--count 0", "--client-certificate f", "--ca f --insecure", "boil"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[tokio::test]
    async fn every_mode_against_a_fake_server() {
        let fake = fake::start().await;
        let pid = std::process::id();
        let line = format!(
            "--server http://{} --pid {pid} --connections 2 --workers 4 --count 60 --objects 1200 \
             --watchers 20 --watch-connections 4",
            fake.address
        );
        let report = measure(&parse(&line).unwrap()).await.unwrap();
        for mode in Mode::value_variants().iter().filter(|mode| schedule::shape(**mode).is_none()) {
            let name = mode_name(*mode);
            let row = report.rows.iter().find(|row| row.operation == name).unwrap();
            assert_eq!(row.errors, 0, "{name}: {}", row.errors_text);
            let expected = if matches!(mode, Mode::WatchAll | Mode::WatchAllProtobuf | Mode::WatchAllPaced) {
                60 * 20
            } else {
                60
            };
            assert_eq!(row.count, expected, "{name}");
        }
        assert!(report.table().contains("merge-patch"));
        assert_eq!(fake.objects(), 0, "everything it made is removed");
    }

    #[tokio::test]
    async fn tls_is_checked_unless_told_otherwise() {
        let (fake, pem) = fake::start_tls().await;
        let (_other, other_pem) = fake::start_tls().await;
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, pem: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, pem).unwrap();
            path.display().to_string()
        };
        let (right, wrong) = (file("right.pem", &pem), file("wrong.pem", &other_pem));
        let table = [(format!("--ca {right}"), true), ("--insecure".into(), true), (format!("--ca {wrong}"), false)];
        for (trust, works) in table {
            let line =
                format!("--server https://{} {trust} --connections 1 --workers 2 --count 5 create", fake.address);
            let count = measure(&parse(&line).unwrap()).await.map(|report| report.rows[0].count);
            assert_eq!(count.as_ref().ok(), works.then_some(&5), "{trust}: {count:?}");
        }
    }

    /// kube-apiserver sends GOAWAY at random with `--goaway-chance`; the benchmark must then reconnect without
    /// failures.
    #[tokio::test]
    async fn a_server_may_send_its_clients_away() {
        let fake = fake::start().await;
        fake.end_connections_after(7);
        let line = format!("--server http://{} --connections 2 --workers 4 --count 200 create get", fake.address);
        let report = measure(&parse(&line).unwrap()).await.unwrap();
        for row in &report.rows {
            assert_eq!((row.errors, row.errors_text.as_str()), (0, ""), "{}", row.operation);
        }
        assert_eq!(report.rows.last().map(|row| row.count), Some(200));
    }

    #[tokio::test]
    async fn refusals_are_errors_never_successes() {
        let fake = fake::start().await;
        fake.refuse_every_second_get();
        let line = format!("--server http://{} --workers 1 --count 40 get", fake.address);
        let report = measure(&parse(&line).unwrap()).await.unwrap();
        let row = report.rows.last().unwrap();
        assert_eq!((row.count, row.errors), (20, 20));
        assert!(row.errors_text.contains("429 TooManyRequests"), "{}", row.errors_text);
    }
}
