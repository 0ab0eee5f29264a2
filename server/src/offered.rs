//! The options about which APIs are served, and which release the server emulates.

use clap::ArgAction;
use holdfast_component::values::parse_bool;
use holdfast_core::kinds::offered::{NEWEST, OLDEST, Offer};
use holdfast_core::kinds::registry;
use std::collections::BTreeMap;

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "APIs")]
pub struct OfferArgs {
    /// APIs to turn on or off: GROUP/VERSION, GROUP/VERSION/RESOURCE, api/all, api/ga, api/beta, api/alpha. The more
    /// specific name wins. Repeatable.
    #[arg(long, value_delimiter = ',', value_name = "NAME=BOOL,...")]
    pub runtime_config: Vec<String>,
    /// Release of Kubernetes to emulate, 1.18 or later: newer APIs and fields are not served, and feature gates have
    /// that release's defaults [default: 1.35].
    #[arg(long, value_delimiter = ',', value_name = "[kube=]1.N")]
    pub emulated_version: Vec<String>,
    /// The oldest release whose API servers can run beside this one, as /version reports it [default: the release
    /// before the emulated release].
    #[arg(long, value_delimiter = ',', value_name = "[kube=]1.N")]
    pub min_compatibility_version: Vec<String>,
    /// Also serve newer, more stable versions of the APIs that the emulated release has in beta.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub emulation_forward_compatible: bool,
    /// Serve the APIs that --runtime-config names even if they are newer than the emulated release.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub runtime_config_emulation_forward_compatible: bool,
}

/// The minor release that a server emulates, and the oldest minor release whose servers are compatible with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Releases {
    pub emulated: u32,
    pub min_compatible: u32,
}

impl OfferArgs {
    /// The APIs that these options serve, or all faults of the options.
    pub fn offer(&self) -> Result<(Offer, Releases), Vec<String>> {
        let mut faults = Vec::new();
        let mut minor = |texts: &[String], option: &str| match read_minor(texts) {
            Ok(minor) => minor,
            Err(why) => {
                faults.push(format!("--{option}: {why}"));
                None
            }
        };
        let emulated = minor(&self.emulated_version, "emulated-version").unwrap_or(NEWEST);
        let min_compatible = minor(&self.min_compatibility_version, "min-compatibility-version");
        if !(OLDEST..=NEWEST).contains(&emulated) {
            faults.push(format!("emulation version 1.{emulated} is not between [1.{OLDEST}, 1.{NEWEST}.0]"));
        }
        let min_compatible = min_compatible.unwrap_or(emulated.saturating_sub(1).max(OLDEST));
        if !(OLDEST..=emulated).contains(&min_compatible) && faults.is_empty() {
            faults.push(format!(
                "minCompatibilityVersion version 1.{min_compatible} is not between [1.{OLDEST}, 1.{emulated}]"
            ));
        }
        let forwards = [
            ("emulation-forward-compatible", self.emulation_forward_compatible),
            ("runtime-config-emulation-forward-compatible", self.runtime_config_emulation_forward_compatible),
        ];
        for (option, _) in forwards.into_iter().filter(|(_, forward)| *forward && emulated >= NEWEST) {
            faults
                .push(format!("--{option} can only be set to true if the emulation version is lower than 1.{NEWEST}"));
        }
        let asked = read_switches(&self.runtime_config, &mut faults);
        let offer = Offer {
            release: emulated,
            forward: self.emulation_forward_compatible,
            asked_forward: self.runtime_config_emulation_forward_compatible,
            asked,
        };
        faults.extend(offer.faults(registry()).into_iter().map(|why| format!("--runtime-config: {why}")));
        match faults.is_empty() {
            true => Ok((offer, Releases { emulated, min_compatible })),
            false => Err(faults),
        }
    }
}

/// The minor release of the last `[kube=]1.N`.
pub fn read_minor(texts: &[String]) -> Result<Option<u32>, String> {
    let mut found = None;
    for text in texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
        let version = match text.split_once('=') {
            Some(("kube", version)) => version,
            Some((other, _)) => return Err(format!("component not registered: {other}")),
            None => text,
        };
        let wrong = || format!("{version:?} is not a release such as 1.{NEWEST}");
        let rest = version.trim_start_matches('v').strip_prefix("1.").ok_or_else(wrong)?;
        if rest.contains('.') {
            return Err(format!("patch version not allowed, got: {version}"));
        }
        found = Some(rest.parse().map_err(|_| wrong())?);
    }
    Ok(found)
}

/// Parses `NAME` and `NAME=BOOL`; a name without a value is on.
fn read_switches(texts: &[String], faults: &mut Vec<String>) -> BTreeMap<String, bool> {
    let mut switches = BTreeMap::new();
    for text in texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        // The core group may be given by its path, as in `api/v1`.
        let name = name.strip_prefix("api/").filter(|version| version.starts_with('v')).unwrap_or(name);
        match parse_bool(if value.is_empty() { "true" } else { value }) {
            Ok(on) => _ = switches.insert(name.to_owned(), on),
            Err(why) => faults.push(format!("--runtime-config: invalid value of {name}={value}, err: {why}")),
        }
    }
    switches
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        offer: OfferArgs,
    }

    fn offer(options: &[&str]) -> Result<(Offer, Releases), Vec<String>> {
        Cli::parse_from(["holdfast"].iter().chain(options)).offer.offer()
    }

    #[test]
    fn options_of_common_set_ups_are_read() {
        let (plain, releases) = offer(&["--runtime-config="]).unwrap();
        assert_eq!((plain, releases), (Offer::default(), Releases { emulated: 35, min_compatible: 34 }));
        let (many, _) = offer(&["--runtime-config=api/v1,batch/v1=", "--runtime-config=api/all=true"]).unwrap();
        assert_eq!(many.asked.len(), 3);
        assert!(many.asked.values().all(|on| *on));
        let (old, releases) = offer(&["--emulated-version=kube=1.18", "--emulation-forward-compatible"]).unwrap();
        assert!(old.release == 18 && old.forward);
        assert_eq!(releases, Releases { emulated: 18, min_compatible: 18 });
    }

    #[test]
    fn what_is_wrong_is_told_all_at_once() {
        for (options, expected) in [
            (&["--emulated-version=1.17"][..], &["emulation version 1.17 is not between [1.18, 1.35.0]"][..]),
            (&["--emulated-version=1.31.1"], &["--emulated-version: patch version not allowed, got: 1.31.1"]),
            (&["--emulated-version=test=1.31"], &["component not registered: test"]),
            (
                &["--emulated-version=1.20", "--min-compatibility-version=1.21"],
                &["minCompatibilityVersion version 1.21 is not between [1.18, 1.20]"],
            ),
            (
                &["--emulation-forward-compatible", "--runtime-config=batch/v1=perhaps,x.io/v1"],
                &["can only be set to true", "invalid value of batch/v1=perhaps", "unknown api groups x.io"],
            ),
        ] {
            let faults = offer(options).unwrap_err();
            assert_eq!(faults.len(), expected.len(), "{options:?}: {faults:?}");
            for (fault, part) in faults.iter().zip(expected) {
                assert!(fault.contains(part), "{part} in {fault}");
            }
        }
    }
}
