//! `--tracing-config-file`: which requests are traced, and where their spans are sent.

use anyhow::{Result, anyhow, bail, ensure};
use holdfast_component::options::joined;
use holdfast_core::object::decode;
use holdfast_core::object::reader::{Faults, Reader};
use std::path::Path;

/// The collector's address if the file names none.
const ENDPOINT: &str = "localhost:4317";
const MILLION: i64 = 1_000_000;
const KIND: &str = "TracingConfiguration";
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// The content of the file of `--tracing-config-file`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracingConfig {
    /// `HOST:PORT` of a collector that serves OTLP over gRPC without TLS.
    pub endpoint: String,
    pub per_million: u32,
}

pub fn read(file: &Path) -> Result<TracingConfig> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        anyhow!("--tracing-config-file: unable to read tracing configuration from {shown:?}: {error}")
    })?;
    ensure!(!text.trim().is_empty(), "--tracing-config-file={shown}: tracing config file was empty");
    parse(&text).map_err(|faults| anyhow!("--tracing-config-file={shown}: {}", joined(&faults)))
}

fn parse(text: &str) -> Result<TracingConfig, Vec<String>> {
    let document = decode::yaml(text.as_bytes()).map_err(|error| vec![error.to_string()])?.value;
    let faults = Faults::default();
    let read = Reader::new(&document, "", &faults).map(|reader| {
        let (kind, version) = (reader.text("kind").unwrap_or(""), reader.text("apiVersion").unwrap_or(""));
        if kind != KIND || !VERSIONS.contains(&version) {
            reader.fault("", format!("no kind {kind:?} is registered for version {version:?}"));
        }
        let per_million = reader.int("samplingRatePerMillion").unwrap_or(0);
        if per_million < 0 {
            reader.invalid("samplingRatePerMillion", per_million, "sampling rate must be positive");
        }
        if per_million > MILLION {
            reader.invalid(
                "samplingRatePerMillion",
                per_million,
                "sampling rate per million must be less than or equal to one million",
            );
        }
        let endpoint = reader.text("endpoint").filter(|text| !text.is_empty()).unwrap_or(ENDPOINT);
        let address = address(endpoint);
        if let Err(why) = &address {
            reader.invalid("endpoint", endpoint, &why.to_string());
        }
        let per_million = u32::try_from(per_million.clamp(0, MILLION)).unwrap_or(0);
        TracingConfig { endpoint: address.unwrap_or_default(), per_million }
    });
    match (read, faults.into_inner()) {
        (Some(read), faults) if faults.is_empty() => Ok(read),
        (_, faults) => Err(faults.iter().map(ToString::to_string).collect()),
    }
}

/// The `HOST:PORT` of an endpoint: given as such, or in a URL whose scheme says how the host is resolved.
fn address(endpoint: &str) -> Result<String> {
    let rest = match endpoint.split_once("://") {
        None => endpoint.strip_prefix("dns:").unwrap_or(endpoint),
        Some(("dns" | "http", rest)) => rest.trim_start_matches('/'),
        Some((scheme, _)) => bail!("unsupported scheme: {scheme}. Options are none, dns, or http"),
    };
    let authority: http::uri::Authority = rest.parse().map_err(|error| anyhow!("{error}"))?;
    ensure!(authority.port_u16().is_some() && !authority.host().is_empty(), "expected HOST:PORT");
    Ok(authority.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";

    #[test]
    fn files_are_read_with_their_defaults() {
        let usual = TracingConfig { endpoint: "localhost:4317".into(), per_million: 0 };
        assert_eq!(parse(HEAD), Ok(usual));
        let given = format!("{HEAD}endpoint: dns:///collector.example:4317\nsamplingRatePerMillion: 5\n");
        assert_eq!(parse(&given), Ok(TracingConfig { endpoint: "collector.example:4317".into(), per_million: 5 }));
    }

    #[test]
    fn all_that_is_wrong_is_told_by_its_field() {
        let text = "kind: Tracing\nendpoint: ftp://x\nsamplingRatePerMillion: 1000001\nmore: 1\n";
        let faults = parse(text).unwrap_err();
        for (fault, part) in faults.iter().zip([
            "no kind \"Tracing\" is registered for version \"\"",
            "samplingRatePerMillion: Invalid value: 1000001: sampling rate per million",
            "endpoint: Invalid value: ftp://x: unsupported scheme",
            "more",
        ]) {
            assert!(fault.contains(part), "{part} in {fault}");
        }
        assert_eq!(faults.len(), 4, "{faults:?}");
        assert!(parse(&format!("{HEAD}samplingRatePerMillion: -1\n")).unwrap_err()[0].contains("must be positive"));
    }
}
