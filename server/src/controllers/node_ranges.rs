//! The options of node IPAM: which addresses the pods of a node get.

use anyhow::{Result, anyhow, ensure};
use clap::ArgAction;
use holdfast_component::values::parse_bool;
use holdfast_controllers::Settings;
use holdfast_controllers::addresses::Range;
use holdfast_controllers::node_ipam::NodeRanges;

#[derive(clap::Args, Debug)]
#[group(skip)]
#[command(next_help_heading = "Addresses of pods")]
pub struct Args {
    /// Allocate a pod CIDR to each node.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    allocate_node_cidrs: bool,
    /// IP ranges of all pods: one CIDR, or one of each family.
    #[arg(long, value_delimiter = ',', value_name = "RANGES")]
    cluster_cidr: Vec<String>,
    /// IP ranges of Services: pods get no addresses in them. One CIDR, or one of each family.
    #[arg(long, value_delimiter = ',', value_name = "RANGES")]
    service_cluster_ip_range: Vec<String>,
    /// Prefix length of a node's pod CIDR, in a cluster of one IP family; 0 for 24 (IPv4) or 64 (IPv6).
    #[arg(long, default_value_t = 0, value_name = "BITS")]
    node_cidr_mask_size: u32,
    /// Prefix length of a node's IPv4 pod CIDR; 0 for 24.
    #[arg(long, default_value_t = 0, value_name = "BITS")]
    node_cidr_mask_size_ipv4: u32,
    /// Prefix length of a node's IPv6 pod CIDR; 0 for 64.
    #[arg(long, default_value_t = 0, value_name = "BITS")]
    node_cidr_mask_size_ipv6: u32,
}

impl Args {
    pub fn apply(&self, settings: &mut Settings) -> Result<()> {
        let cluster = ranges("cluster-cidr", &self.cluster_cidr)?;
        ranges("service-cluster-ip-range", &self.service_cluster_ip_range)?;
        settings.allocate_node_ranges = self.allocate_node_cidrs;
        settings.cluster_ranges = given(&self.cluster_cidr);
        settings.service_ranges = given(&self.service_cluster_ip_range);
        if !self.allocate_node_cidrs {
            return Ok(());
        }
        ensure!(!cluster.is_empty(), "--allocate-node-cidrs needs --cluster-cidr, the addresses to allocate from");
        (settings.node_bits_v4, settings.node_bits_v6) = self.bits(&cluster)?;
        NodeRanges::new(settings).map(drop).map_err(|why| anyhow!("--cluster-cidr: {why}"))
    }

    /// The prefix lengths of a node's IPv4 range and IPv6 range.
    fn bits(&self, cluster: &[Range]) -> Result<(u32, u32)> {
        let (both, v4, v6) = (self.node_cidr_mask_size, self.node_cidr_mask_size_ipv4, self.node_cidr_mask_size_ipv6);
        let or = |bits: u32, usual: u32| if bits == 0 { usual } else { bits };
        if let [only] = cluster {
            ensure!(
                both == 0 || v4 == 0 && v6 == 0,
                "--node-cidr-mask-size: it is for all families, and one has an option of its own: give one of them"
            );
            ensure!(v4 == 0 || !only.is_v6, "--node-cidr-mask-size-ipv4: {only} is a range of IPv6");
            ensure!(v6 == 0 || only.is_v6, "--node-cidr-mask-size-ipv6: {only} is a range of IPv4");
        } else {
            ensure!(both == 0, "--node-cidr-mask-size: a cluster of two families has an option for each");
        }
        Ok((or(both.max(v4), 24), or(both.max(v6), 64)))
    }
}

fn given(texts: &[String]) -> Vec<String> {
    texts.iter().filter(|text| !text.is_empty()).cloned().collect()
}

/// Parses the ranges of an option: one range, or one range of each IP family.
fn ranges(option: &str, texts: &[String]) -> Result<Vec<Range>> {
    let read = |text: &String| Range::parse(text).ok_or_else(|| anyhow!("--{option}: invalid CIDR address: {text}"));
    let ranges = given(texts).iter().map(read).collect::<Result<Vec<Range>>>()?;
    match ranges.as_slice() {
        [] | [_] => {}
        [one, other] => {
            ensure!(one.is_v6 != other.is_v6, "--{option}: of two ranges one is of IPv4 and one of IPv6");
        }
        _ => anyhow::bail!("--{option}: there are {} ranges, and no more than two families", ranges.len()),
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        ranges: Args,
    }

    fn bits(options: &[&str]) -> Result<(u32, u32), String> {
        let options = ["holdfast", "--allocate-node-cidrs"].iter().chain(options);
        let cli = Cli::try_parse_from(options).map_err(|error| error.to_string())?;
        let mut settings = Settings::default();
        cli.ranges.apply(&mut settings).map_err(|error| error.to_string())?;
        Ok((settings.node_bits_v4, settings.node_bits_v6))
    }

    #[test]
    fn the_ranges_of_nodes_are_as_large_as_options_say() {
        let rows: [(&[&str], (u32, u32)); 5] = [
            (&["--cluster-cidr=10.0.0.0/16"], (24, 64)),
            (&["--cluster-cidr=10.0.0.0/16", "--node-cidr-mask-size=26"], (26, 26)),
            (&["--cluster-cidr=10.0.0.0/16", "--node-cidr-mask-size-ipv4=26"], (26, 64)),
            (&["--cluster-cidr=fd00::/48", "--node-cidr-mask-size-ipv6=60"], (24, 60)),
            (&["--cluster-cidr=10.0.0.0/16,fd00::/56", "--node-cidr-mask-size-ipv4=25"], (25, 64)),
        ];
        for (options, expected) in rows {
            assert_eq!(bits(options), Ok(expected), "{options:?}");
        }
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused_by_the_option() {
        let rows: [(&[&str], &str); 9] = [
            (&[], "--allocate-node-cidrs needs --cluster-cidr"),
            (&["--cluster-cidr=10.0.0.0"], "--cluster-cidr: invalid CIDR address: 10.0.0.0"),
            (&["--cluster-cidr=10.0.0.0/16,10.1.0.0/16"], "one is of IPv4"),
            (&["--cluster-cidr=10.0.0.0/16", "--node-cidr-mask-size=8"], "does not fit in 10.0.0.0/16"),
            (&["--cluster-cidr=10.0.0.0/16", "--node-cidr-mask-size=99"], "does not fit in 10.0.0.0/16"),
            (&["--cluster-cidr=10.0.0.0/16", "--node-cidr-mask-size-ipv6=64"], "is a range of IPv4"),
            (&["--cluster-cidr=10.0.0.0/16,fd00::/56", "--node-cidr-mask-size=24"], "an option for each"),
            (&["--cluster-cidr=fd00::/40"], "does not fit in fd00::/40"),
            (&["--cluster-cidr=10.0.0.0/16", "--service-cluster-ip-range=x"], "--service-cluster-ip-range: invalid"),
        ];
        for (options, why) in rows {
            let refused = bits(options).expect_err(why);
            assert!(refused.contains(why), "{options:?}: {refused}");
        }
    }
}
