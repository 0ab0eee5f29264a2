//! `holdfast replay`: repeats the writes in a log against any Kubernetes API, at their original pace.
//!
//! [`source`] reads the log, [`plan`] converts events to requests, [`target`] sends them to the other server, [`drive`]
//! keeps the pace and the order, and [`report`] reports the outcome.

mod drive;
mod plan;
mod report;
mod source;
mod target;

use crate::encryption::EncryptionArgs;
use crate::history::ReportFormat;
use anyhow::{Result, bail};
use source::Source;
use std::path::PathBuf;
use std::str::FromStr;
use target::Target;

#[derive(clap::Args)]
pub struct Args {
    /// The log to replay: a file of `holdfast log export`, a data folder, or the kubeconfig of a running Holdfast.
    #[arg(value_name = "LOG")]
    log: PathBuf,
    #[command(flatten)]
    encryption: EncryptionArgs,
    /// The server to write to: a kubeconfig, or a URL. If $KUBECONFIG or ~/.kube/config has a cluster with this URL,
    /// its credentials are used; otherwise none are sent.
    #[arg(long, value_name = "KUBECONFIG|URL")]
    against: String,
    /// Context of the kubeconfig in --against [default: its current one].
    #[arg(long, value_name = "NAME")]
    against_context: Option<String>,
    /// Speed relative to the recording, such as 1, 0.5 or 60; max for as fast as possible.
    #[arg(long, value_name = "X", default_value = "1")]
    speed: Speed,
    /// The first event to replay.
    #[arg(long, value_name = "VERSION", default_value_t = 1)]
    from: u64,
    /// The last event to replay [default: the log's last].
    #[arg(long, value_name = "VERSION")]
    to: Option<u64>,
    /// Maximum number of requests at the same time. Requests for one object are always sent one after another.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Exit with 0 even if the server refused some requests.
    #[arg(long)]
    tolerate: bool,
    #[command(flatten)]
    shown: ReportFormat,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Speed {
    Times(f64),
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        let times = text.parse().ok().filter(|times: &f64| times.is_finite() && *times > 0.0);
        times.map(Speed::Times).ok_or_else(|| "give how many times as fast (1, 0.5, 60), or max".into())
    }
}

pub fn run(args: &Args) -> Result<()> {
    let source = Source::open(&args.log, &args.encryption, args.from, args.to)?;
    let runtime = crate::runtime()?;
    let target = runtime.block_on(Target::connect(&args.against, args.against_context.as_deref()))?;
    if source.server() == Some(target.server.as_str()) {
        bail!("{} is the server that the log is of: replay it against another one", target.server);
    }
    let summary = runtime.block_on(drive::drive(source, target, args.speed, usize::from(args.concurrency)))?;
    let refused = summary.refused();
    args.shown.write(&summary)?;
    if refused > 0 && !args.tolerate {
        let events = if refused == 1 { "event" } else { "events" };
        bail!("{} refused {refused} {events}; --tolerate accepts that", summary.server);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_positive_numbers_or_the_most_there_is() {
        for (text, expected) in
            [("1", Some(Speed::Times(1.0))), ("0.5", Some(Speed::Times(0.5))), ("max", Some(Speed::Max))]
        {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
        for text in ["0", "-1", "inf", "NaN", "fast", ""] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }
}
