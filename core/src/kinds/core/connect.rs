//! Connect subresources of pods: the kubelet paths that they lead to, and the containers that they may name.

use crate::kinds::build::text;
use crate::kinds::connect::query_of;
use crate::kinds::{ConnectOptions, Destination, Leading, Machine, Named, is_global, known};
use crate::refusal::{BadRequest, Cause, Causes, Refusal, Subject, Unavailable};
use holdfast_value::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The feature gate of selecting an output stream of a container's log. While the gate is off, a log has all output.
pub const SPLIT_LOGS: &str = "PodLogsQuerySplitStreams";
const ALL_STREAMS: &str = "All";
const LOG_STREAMS: [&str; 3] = [ALL_STREAMS, "Stderr", "Stdout"];

/// The stream of a log that the options select.
fn stream(options: &ConnectOptions) -> Option<&str> {
    options.all("stream").next().filter(|stream| !stream.is_empty())
}

/// Checks the options of `log`; other subresources have no options that are invalid by themselves.
pub fn options(
    name: &str,
    part: &str,
    options: &ConnectOptions,
    gates_off: &BTreeSet<&'static str>,
) -> Result<(), Refusal> {
    if part != "log" {
        return Ok(());
    }
    let ConnectOptions { limit_bytes, since_seconds, since_time, tail_lines, .. } = options;
    let mut causes = Causes::default();
    if let Some(lines) = tail_lines.filter(|lines| *lines < 0) {
        causes.push(Cause::invalid("tailLines", &lines.into(), "must be greater than or equal to 0"));
    }
    if let Some(bytes) = limit_bytes.filter(|bytes| *bytes < 1) {
        causes.push(Cause::invalid("limitBytes", &bytes.into(), "must be greater than 0"));
    }
    match (since_seconds, since_time) {
        (Some(_), Some(_)) => {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            causes.push(Cause::forbidden("", why));
        }
        (Some(seconds), None) if *seconds < 1 => {
            causes.push(Cause::invalid("sinceSeconds", &(*seconds).into(), "must be greater than 0"));
        }
        _ => {}
    }
    match stream(options) {
        Some(_) if gates_off.contains(SPLIT_LOGS) => causes.push(Cause::forbidden("stream", "may not be specified")),
        Some(stream) => {
            if !LOG_STREAMS.contains(&stream) {
                causes.push(Cause::not_supported("stream", &stream.into(), &LOG_STREAMS));
            }
            if stream != ALL_STREAMS && tail_lines.is_some() {
                let why = "`tailLines` and specific `stream` are mutually exclusive for now";
                causes.push(Cause::forbidden("", why));
            }
        }
        None => {}
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { subject: Subject::new("", "PodLogOptions", name), causes })
}

/// The destination of a pod's subresource.
pub fn leads(pod: &Value, leading: &Leading<'_>) -> Result<Destination, Refusal> {
    let Leading { part, options, .. } = *leading;
    if part == "proxy" {
        return proxied(pod, leading);
    }
    let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    let into = if part == "portforward" { String::new() } else { format!("/{}", container(pod, options)?) };
    let node = text(pod, "/spec/nodeName");
    if node.is_empty() {
        return match part {
            "log" => Ok(Destination::Nowhere),
            _ => Err(Refusal::BadRequest(BadRequest::NoHost { pod: name })),
        };
    }
    let machine = Machine::find(leading.find, &node)?;
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let first = match part {
        "log" => {
            log_query(options, &mut pairs);
            "containerLogs"
        }
        "portforward" => {
            let ports: Vec<String> = options.ports()?.iter().map(u16::to_string).collect();
            if !ports.is_empty() {
                pairs.push(("port", ports.join(",")));
            }
            "portForward"
        }
        part => {
            if part == "exec" {
                pairs.extend(options.all("command").map(|word| ("command", word.to_owned())));
            }
            for (asked, told) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
                if options.flag(asked) {
                    pairs.push((told, "1".to_owned()));
                }
            }
            part
        }
    };
    let path = format!("/{first}/{namespace}/{name}{into}");
    Ok(Destination::Kubelet { machine, path, query: query_of(pairs) })
}

fn log_query(options: &ConnectOptions, pairs: &mut Vec<(&str, String)>) {
    for name in ["follow", "previous", "timestamps"] {
        if options.flag(name) {
            pairs.push((name, "true".to_owned()));
        }
    }
    for (name, number) in [
        ("sinceSeconds", options.since_seconds),
        ("tailLines", options.tail_lines),
        ("limitBytes", options.limit_bytes),
    ] {
        pairs.extend(number.map(|number| (name, number.to_string())));
    }
    pairs.extend(options.since_time.clone().map(|time| ("sinceTime", time)));
    pairs.extend(stream(options).map(|stream| ("stream", stream.to_owned())));
}

/// The container that the options name, or the pod's only container.
fn container(pod: &Value, options: &ConnectOptions) -> Result<String, Refusal> {
    let of = |field: &str| -> Vec<String> {
        let containers = pod["spec"][field].as_array().into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect()
    };
    let (init, regular, ephemeral) = (of("initContainers"), of("containers"), of("ephemeralContainers"));
    let pod = || text(pod, "/metadata/name");
    match (options.container.as_deref().filter(|name| !name.is_empty()), &regular[..]) {
        (None, [only]) => Ok(only.clone()),
        (None, _) => {
            let names = [init, regular, ephemeral].concat();
            Err(Refusal::BadRequest(BadRequest::NoContainer { pod: pod(), names }))
        }
        (Some(name), _) if [init, regular.clone(), ephemeral].concat().iter().any(|own| own == name) => {
            Ok(name.to_owned())
        }
        (Some(name), _) => Err(Refusal::BadRequest(BadRequest::OtherContainer { pod: pod(), container: name.into() })),
    }
}

/// The destination of a pod's proxy: the pod's address, at the port that the request names, or else at the pod's first
/// port.
fn proxied(pod: &Value, leading: &Leading<'_>) -> Result<Destination, Refusal> {
    let Named { is_secure, port, .. } = *leading.way;
    let not_allowed = || Refusal::BadRequest(BadRequest::NoAddress);
    let address = text(pod, "/status/podIP").parse().ok().filter(|address: &IpAddr| is_global(*address));
    let host = address.ok_or_else(not_allowed)?;
    refuse_simulated(leading.find, pod)?;
    let port = match port {
        "" => {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let mut ports = containers.filter_map(|container| container["ports"][0]["containerPort"].as_u64());
            ports.next().and_then(|port| u16::try_from(port).ok())
        }
        port => Some(port.parse().map_err(|_| not_allowed())?),
    };
    Ok(Destination::Server { is_secure, host, port })
}

/// Refuses to proxy to a pod on a simulated node: the pod's address is invented, and may belong to another host.
pub fn refuse_simulated(find: &dyn Fn(known::Known, &str) -> Option<Value>, pod: &Value) -> Result<(), Refusal> {
    let node = text(pod, "/spec/nodeName");
    let is_simulated = find(known::NODE, &node).is_some_and(|node| Machine::of(&node).is_simulated);
    match is_simulated {
        true => Err(Refusal::Unavailable(Unavailable::NodeNotConnected { node })),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    fn find(kind: known::Known, name: &str) -> Option<Value> {
        let node = json!({
            "metadata": {"name": name},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            },
        });
        (kind == known::NODE && name == "n").then_some(node)
    }

    fn led(pod: &Value, part: &str, pairs: &[(&str, &str)]) -> Result<String, String> {
        let pairs: Vec<_> = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let mut options = ConnectOptions { parameters: pairs, ..ConnectOptions::default() };
        let container = options.all("container").next().map(str::to_owned);
        options.container = container;
        let way = Named::parse("p").expect("a name");
        let led = leads(pod, &Leading { part, way: &way, options: &options, find: &find, draw: 0 });
        led.map_err(|refusal| refusal.message()).map(|destination| match destination {
            Destination::Kubelet { machine, path, query } => format!("{} {path}?{query}", machine.name),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn ways_lead_to_the_kubelet_as_kubernetes_asks_it() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "s"},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}], "initContainers": [{"name": "i"}]},
        });
        let all =
            [("command", "ls"), ("command", "-l"), ("stdin", "true"), ("stdout", "1"), ("stderr", "x"), ("tty", "")];
        let query = "command=ls&command=-l&error=1&input=1&output=1&tty=1";
        assert_eq!(led(&pod, "exec", &all), Ok(format!("n /exec/s/p/c?{query}")));
        let attach = [("container", "i"), ("stdin", "false"), ("stdout", "true")];
        assert_eq!(led(&pod, "attach", &attach), Ok("n /attach/s/p/i?output=1".to_owned()));
        for ports in [&[("ports", "80"), ("ports", "443")][..], &[("ports", "80,443")]] {
            assert_eq!(led(&pod, "portforward", ports), Ok("n /portForward/s/p?port=80%2C443".to_owned()));
        }
        led(&pod, "portforward", &[("ports", "80,x")]).expect_err("no port");
        assert_eq!(led(&pod, "portforward", &[]), Ok("n /portForward/s/p?".to_owned()));
        let log = [("follow", "true"), ("timestamps", "0")];
        assert_eq!(led(&pod, "log", &log), Ok("n /containerLogs/s/p/c?follow=true".to_owned()));
    }

    #[test]
    fn a_stream_of_a_log_is_selected_if_the_gate_is_on() {
        let on = BTreeSet::new();
        let off = BTreeSet::from([SPLIT_LOGS]);
        let forbidden = "stream: Forbidden: may not be specified";
        let both = "Forbidden: `tailLines` and specific `stream` are mutually exclusive for now";
        let other = "stream: Unsupported value: \"stdout\": supported values: \"All\", \"Stderr\", \"Stdout\"";
        for (stream, tail_lines, gates_off, expected) in [
            ("", None, &off, None),
            ("All", None, &off, Some(forbidden)),
            ("Stdout", None, &on, None),
            ("Stderr", None, &on, None),
            ("All", Some(5), &on, None),
            ("", Some(5), &on, None),
            ("Stdout", Some(5), &on, Some(both)),
            ("stdout", None, &on, Some(other)),
        ] {
            let parameters = vec![("stream".to_owned(), stream.to_owned())];
            let given = ConnectOptions { parameters, tail_lines, ..ConnectOptions::default() };
            let found = options("p", "log", &given, gates_off).err().map(|refusal| refusal.message());
            let is_right = match (&found, expected) {
                (Some(found), Some(expected)) => found.ends_with(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_right, "{stream:?} {tail_lines:?}: {found:?}");
        }
        let pod = json!({"metadata": {"name": "p", "namespace": "s"},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]}});
        let query = led(&pod, "log", &[("stream", "Stderr")]);
        assert_eq!(query, Ok("n /containerLogs/s/p/c?stream=Stderr".to_owned()));
    }

    #[test]
    fn what_leads_nowhere_is_told_in_kubernetes_words() {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "s"},
            "spec": {
                "containers": [{"name": "a"}, {"name": "b"}],
                "initContainers": [{"name": "i"}],
                "ephemeralContainers": [{"name": "e"}],
            },
        });
        let named = [("container", "b")];
        assert_eq!(led(&pod, "log", &named), Ok("Nowhere".to_owned()));
        let told = |text: &str| Err(text.to_owned());
        assert_eq!(led(&pod, "exec", &named), told("pod p does not have a host assigned"));
        let several = "a container name must be specified for pod p, choose one of: [i a b e]";
        assert_eq!(led(&pod, "attach", &[]), told(several));
        assert_eq!(led(&pod, "log", &[("container", "x")]), told("container x is not valid for pod p"));
        pod["spec"]["nodeName"] = "gone".into();
        assert_eq!(led(&pod, "exec", &named), told("pods \"gone\" not found"));
        assert_eq!(led(&pod, "proxy", &[]), told("address not allowed"));
        pod["status"] = json!({"podIP": "127.0.0.1"});
        assert_eq!(led(&pod, "proxy", &[]), told("address not allowed"));
        pod["status"] = json!({"podIP": "10.1.2.3"});
        let server = "Server { is_secure: false, host: 10.1.2.3, port: None }";
        assert_eq!(led(&pod, "proxy", &[]), Ok(server.to_owned()));
    }
}
