//! Tests inputs that are as large as a request may be and have forms for which quadratic algorithms are slow. The time
//! for them must be close to linear.
//!
//! Each input is tested at an eighth of the size and at the whole size. The time for the small input is the baseline.
//! Linear work takes eight times as long for the large input, and a few times more is allowed. Quadratic work takes
//! sixty-four times as long.
#![cfg(not(debug_assertions))]

#[path = "../../tools/fuzz/src/lib.rs"]
mod targets;

use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::time::Duration;

/// The number of bytes of a large input. A request may have 3 MiB.
const BYTES: usize = 2_000_000;
/// A large input has this many times as many bytes as the small input.
const TIMES: u32 = 8;
/// The factor by which the time for a large input may exceed linear time, because sorting and cold caches cost more.
const SLACK: u32 = 3;
/// The shortest time for a large input that is judged. Shorter times cannot be measured well enough.
const SHORT: Duration = Duration::from_millis(50);

/// Calls `piece` with consecutive numbers, and joins the results by commas until they have `bytes` bytes.
fn many(bytes: usize, piece: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{}", piece(number));
    }
    text
}

/// Like [`many`], with the numbers in descending order.
fn falling(bytes: usize, piece: impl Fn(usize) -> String) -> String {
    let count = bytes / piece(999_999).len();
    (0..count).rev().map(piece).collect::<Vec<_>>().join(",")
}

/// A run of the tests with inputs of one size.
struct Run {
    bytes: usize,
    /// The time for each input so far, with the input's name.
    times: Vec<(String, Duration)>,
    /// The times for the small inputs, by the same names; empty in the run with the small inputs.
    baseline: Vec<(String, Duration)>,
}

impl Run {
    fn of(bytes: usize, baseline: Vec<(String, Duration)>) -> Run {
        Run { bytes, times: Vec::new(), baseline }
    }

    /// Runs a fuzz target with an input, and measures its time.
    fn input(&mut self, name: &str, target: &str, input: impl AsRef<[u8]>) {
        let (_, run) = targets::TARGETS.iter().find(|(found, _)| *found == target).expect("a target of this name");
        self.measure(name, || run(input.as_ref()));
    }

    fn measure(&mut self, name: &str, work: impl FnOnce()) {
        let before = processor_time();
        work();
        let time = processor_time() - before;
        println!("{name}: {time:?}");
        if let Some((small, linear)) = self.baseline.get(self.times.len()) {
            assert_eq!(small, name, "both runs have the same inputs");
            let most = (*linear * TIMES * SLACK).max(SHORT);
            assert!(time <= most, "{name}: {time:?} for {TIMES} times the input, and {linear:?} for the small one");
        }
        self.times.push((name.to_owned(), time));
    }
}

/// The processor time of this thread. Unlike the wall clock, it does not depend on other work on the machine.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn are_close_to_linear(inputs: fn(&mut Run)) {
    let mut small = Run::of(BYTES / TIMES as usize, Vec::new());
    inputs(&mut small);
    inputs(&mut Run::of(BYTES, small.times));
}

/// Tests these tests: an algorithm that takes quadratic time must make them fail.
#[test]
#[should_panic(expected = "quadratic: ")]
fn quadratic_time_is_found() {
    are_close_to_linear(|run| {
        let steps = run.bytes as u64 / 150;
        run.measure("quadratic", || {
            let pairs = (0..steps).flat_map(|one| (0..steps).map(move |other| one ^ other));
            assert!(pairs.fold(0, |sum: u64, pair| std::hint::black_box(sum.wrapping_add(pair))) > 0);
        });
    });
}

#[test]
fn decoding_is_close_to_linear() {
    are_close_to_linear(decoding);
}

fn decoding(run: &mut Run) {
    let bytes = run.bytes;
    let twice = many(bytes, |n| format!("\"{n}\":0,\"{n}\":1"));
    run.input("keys that stand twice", "json", format!("{{{twice}}}"));
    let key = "k".repeat(bytes / 2);
    let twice = many(bytes / 2, |n| format!("\"{n}\":0,\"{n}\":1"));
    run.input("keys that stand twice below a long one", "json", format!("{{\"{key}\":{{{twice}}}}}"));
    let again = many(bytes / 2, |_| "\"a\":0".into());
    run.input("one key again and again below a long one", "json", format!("{{\"{key}\":{{{again}}}}}"));
    run.input("nothing but brackets", "json", "[".repeat(bytes));
    run.input("lone surrogates", "json", format!("[{}]", many(bytes, |_| "\"\\ud800\"".into())));

    let lines: String = (0..bytes / 10).map(|n| format!("k{n}: 1\n")).collect();
    run.input("many lines of YAML", "yaml", lines);
    let lines: String = (0..bytes / 20).map(|n| format!("k{n}: 1\nk{n}: 2\n")).collect();
    run.input("YAML keys that stand twice", "yaml", lines);
    run.input("YAML brackets", "yaml", "[".repeat(bytes));
    run.input("YAML dashes", "yaml", "- ".repeat(bytes / 2));
    run.input("YAML question marks", "yaml", "? ".repeat(bytes / 2));
    run.input("YAML braces and keys", "yaml", "{a: ".repeat(bytes / 4));
    run.input("YAML quotes", "yaml", "\"a\\".repeat(bytes / 3));
    run.input("YAML anchors", "yaml", (0..bytes / 20).map(|n| format!("- &a{n} x\n- *a{n}\n")).collect::<String>());
    run.input("YAML comments and blanks", "yaml", "#\n\n ".repeat(bytes / 4));
    run.input("YAML colons", "yaml", "a: b: ".repeat(bytes / 6));
    run.input("one long word of YAML", "yaml", "a\n".repeat(bytes / 2));
    let merges = many(bytes, |n| format!("<<: {{a{n}: 1}}"));
    run.input("YAML merges", "yaml", format!("{{{merges}}}"));
}

#[test]
fn checks_are_close_to_linear() {
    are_close_to_linear(checks);
}

fn checks(run: &mut Run) {
    let bytes = run.bytes;
    let key = "k".repeat(bytes / 2);
    let unknown = many(bytes / 2, |n| format!("\"{n}\":0"));
    let definition = "apiextensions.k8s.io/v1 CustomResourceDefinition\n";
    let document = format!("{{\"properties\":{{\"{key}\":{{{unknown}}}}}}}");
    let document = format!("{{\"spec\":{{\"versions\":[{{\"schema\":{{\"openAPIV3Schema\":{document}}}}}]}}}}");
    run.input("unknown fields below a long name", "check", format!("{definition}{document}"));

    let owners = many(bytes, |n| {
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"K\",\"name\":\"{n}\",\"uid\":\"u\",\"controller\":true}}")
    });
    let create = "create json v1 configmaps default\n";
    let owned = format!("{create}{{\"metadata\":{{\"name\":\"a\",\"ownerReferences\":[{owners}]}}}}");
    run.input("many controllers", "decide", owned);
    let labels = many(bytes, |n| format!("\"-{n}\":\"-\""));
    run.input("bad labels", "decide", format!("{create}{{\"metadata\":{{\"name\":\"a\",\"labels\":{{{labels}}}}}}}"));

    let finalizers = |from: usize| many(bytes, |n| format!("\"a/{}\"", from + n));
    let body = |from| format!("{{\"metadata\":{{\"name\":\"a\",\"finalizers\":[{}]}}}}", finalizers(from));
    let deleted = format!(
        "{create}{}\n---\ndelete json v1 configmaps default a\n\n---\nupdate json v1 configmaps default a\n{}",
        body(0),
        body(1_000_000)
    );
    run.input("new finalizers on an object that goes", "decide", deleted);

    let ports = many(bytes, |n| format!("{{\"port\":{n}}}"));
    let service =
        |ty: &str| format!("{{\"metadata\":{{\"name\":\"a\"}},\"spec\":{{\"type\":\"{ty}\",\"ports\":[{ports}]}}}}");
    let create = "create json v1 services default\n";
    run.input("more node ports than there are", "decide", format!("{create}{}", service("NodePort")));
    let twice =
        format!("{create}{}\n---\nupdate json v1 services default a\n{}", service("ClusterIP"), service("NodePort"));
    run.input("more node ports than there are, later", "decide", twice);

    let create = "create json v1 pods default\n";
    let pod = |spec: &str| format!("{create}{{\"metadata\":{{\"name\":\"a\"}},\"spec\":{{{spec}}}}}");
    let nothing = many(bytes, |_| "{}".into());
    run.input("many containers of nothing", "decide", pod(&format!("\"containers\":[{nothing}]")));
    let container = |rest: &str| format!("\"containers\":[{{\"name\":\"a\",\"image\":\"a\",{rest}}}]");
    run.input("many mounts of nothing", "decide", pod(&container(&format!("\"volumeMounts\":[{nothing}]"))));
    let amounts = many(bytes / 2, |n| format!("\"{n}\":\"-1\""));
    run.input("many bad amounts", "decide", pod(&container(&format!("\"resources\":{{\"limits\":{{{amounts}}}}}"))));
    let claims = many(bytes / 2, |n| format!("{{\"name\":\"{n}\"}}"));
    let names =
        (0..64).map(|n| format!("{{\"name\":\"{n}{}\"}}", "n".repeat(bytes / 128))).collect::<Vec<_>>().join(",");
    let claimed = container(&format!("\"resources\":{{\"claims\":[{claims}]}}"));
    run.input("claims that are none of long names", "decide", pod(&format!("{claimed},\"resourceClaims\":[{names}]")));
    let wrong = many(bytes / 2, |n| format!("\"{n}\":{{\"type\":\"x\"}}"));
    let schema = format!(
        "{{\"type\":\"object\",\"properties\":{{\"{key}\":{{\"type\":\"object\",\"properties\":{{{wrong}}}}}}}}}"
    );
    let definition = format!(
        "create json apiextensions.k8s.io/v1 customresourcedefinitions -\n{{\"metadata\":{{\"name\":\"a.b.c\"}},\
         \"spec\":{{\"group\":\"b.c\",\"scope\":\"Cluster\",\"names\":{{\"plural\":\"a\",\"kind\":\"A\"}},\"versions\":[{{\"name\":\"v1\",\
         \"served\":true,\"storage\":true,\"schema\":{{\"openAPIV3Schema\":{schema}}}}}]}}}}"
    );
    run.input("many faults below a long name", "decide", definition);

    let versions = many(bytes / 2, |_| "{}".into());
    let schema = format!("{{\"openAPIV3Schema\":{{\"required\":[{}]}}}}", many(bytes / 2, |_| "\"\"".into()));
    let old = format!(
        "create json apiextensions.k8s.io/v1beta1 customresourcedefinitions -\n{{\"metadata\":{{\"name\":\"a.b\"}},\
         \"spec\":{{\"versions\":[{versions}],\"validation\":{schema}}}}}"
    );
    run.input("a schema for many versions", "decide", old);
}

#[test]
fn patches_are_close_to_linear() {
    are_close_to_linear(patches);
}

fn patches(run: &mut Run) {
    let bytes = run.bytes;
    let kind = "v1 Pod\n";
    let named = |from: usize| many(bytes / 2, |n| format!("{{\"name\":\"{}\"}}", from + n));
    let pod = |containers: &str| format!("{{\"spec\":{{\"containers\":[{containers}]}}}}");
    let (live, same, other) = (pod(&named(100_000)), pod(&named(100_000)), pod(&named(500_000)));
    run.input("a long list merged with itself", "strategic_merge", format!("{kind}{live}\n{same}"));
    run.input("a long list merged with another", "strategic_merge", format!("{kind}{live}\n{other}"));
    let deletes = pod(&many(bytes, |n| format!("{{\"name\":\"{}\",\"$patch\":\"delete\"}}", 500_000 + n)));
    run.input("a long list of deletions", "strategic_merge", format!("{kind}{live}\n{deletes}"));
    let long = "x".repeat(bytes / 2);
    let pod = |variables: &str| format!("{{\"spec\":{{\"containers\":[{{\"name\":\"a\",\"env\":[{variables}]}}]}}}}");
    let (live, patch) = (pod(&format!("{{\"name\":\"{long}\"}}")), pod(&named(100_000)));
    run.input("many new elements beside one with a long name", "strategic_merge", format!("{kind}{live}\n{patch}"));
    let texts = |from: usize| many(bytes / 2, |n| format!("\"{}\"", from + n));
    let live = format!("{{\"metadata\":{{\"finalizers\":[{}]}}}}", texts(100_000));
    let patch = format!("{{\"metadata\":{{\"$deleteFromPrimitiveList/finalizers\":[{}]}}}}", texts(500_000));
    run.input("texts to delete", "strategic_merge", format!("{kind}{live}\n{patch}"));
    let patch = format!("{{\"metadata\":{{\"$setElementOrder/finalizers\":[{}]}}}}", texts(500_000));
    run.input("texts to order", "strategic_merge", format!("{kind}{live}\n{patch}"));
    let fields = |from: usize| many(bytes / 2, |n| format!("\"{}\":\"\"", from + n));
    let live = format!("{{\"metadata\":{{\"labels\":{{{}}}}}}}", fields(100_000));
    let keys = texts(500_000);
    let patch = format!("{{\"metadata\":{{\"labels\":{{\"$retainKeys\":[{keys}],{}}}}}}}", fields(500_000));
    run.input("keys to retain", "strategic_merge", format!("{kind}{live}\n{patch}"));

    let list = many(bytes / 2, |_| "{}".into());
    let moves = many(bytes / 5, |n| {
        let (from, to) = if n % 2 == 0 { ("a", "b") } else { ("b", "a") };
        format!("{{\"op\":\"move\",\"from\":\"/{from}\",\"path\":\"/{to}\"}}")
    });
    run.input("a large value moved to and fro", "json_patch", format!("{{\"a\":[{list}]}}\n[{moves}]"));
    let inserts = many(bytes / 5, |_| "{\"op\":\"add\",\"path\":\"/a/0\",\"value\":1}".into());
    run.input("inserts before a long list", "json_patch", format!("{{\"a\":[{list}]}}\n[{inserts}]"));
}

#[test]
fn applying_is_close_to_linear() {
    are_close_to_linear(applying);
}

fn applying(run: &mut Run) {
    let bytes = run.bytes;
    let pod = |variables: &str| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"p\"}},\"spec\":{{\"containers\":[{{\"name\":\
             \"a\",\"env\":[{variables}]}}]}}}}"
        )
    };
    let variables = falling(bytes / 2, |n| format!("{{\"name\":\"{n:06}\"}}"));
    run.input("a list in falling order", "apply", format!("v1 Pod!\n{{}}\n{}", pod(&variables)));
    let apply = format!("patch apply v1 pods default p force\n{}", pod(&variables));
    run.input("a list in falling order, twice", "decide", format!("{apply}\n---\n{apply}"));

    let managers = |version: &str| {
        many(bytes, |n| {
            format!(
                "{{\"manager\":\"{n}\",\"operation\":\"Apply\",\"apiVersion\":\"{version}\",\"fieldsType\":\"FieldsV1\",\
                 \"fieldsV1\":{{\"f:spec\":{{\"f:paused\":{{}}}}}}}}"
            )
        })
    };
    for version in ["apps/v1", "apps/v1beta1", "none/v1"] {
        let update = format!(
            "update json apps/v1 deployments default web\n{{\"metadata\":{{\"managedFields\":[{}]}},\"spec\":{{\"selector\":{{}},\
             \"template\":{{}}}}}}",
            managers(version)
        );
        let apply = "patch apply apps/v1 deployments default web force\n{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\
                     \"metadata\":{\"name\":\"web\"},\"spec\":{\"paused\":true}}";
        run.input(&format!("many managers of {version}"), "decide", format!("{update}\n---\n{apply}"));
    }
    let elements = falling(bytes, |n| format!("\"k:{{\\\"b\\\":{n:06},\\\"a\\\":1}}\":{{}}"));
    run.input("elements in another order than their canonical ones", "field_set", format!("{{{elements}}}"));
}

#[test]
fn rules_are_close_to_linear() {
    are_close_to_linear(rules);
}

fn rules(run: &mut Run) {
    let bytes = run.bytes;
    let texts = |bytes| many(bytes, |n| format!("\"{n}\""));
    let part = texts(bytes / 4);
    let rule =
        format!("{{\"verbs\":[{part}],\"apiGroups\":[{part}],\"resources\":[{part}],\"resourceNames\":[{part}]}}");
    run.input("a rule of many parts", "rbac", format!("Role\n{{\"rules\":[{rule}]}}"));
    let rules = many(bytes, |n| format!("{{\"verbs\":[\"get\"],\"apiGroups\":[\"\"],\"resources\":[\"{n}\"]}}"));
    run.input("many rules", "rbac", format!("Role\n{{\"rules\":[{rules}]}}"));
    let selectors = many(bytes, |_| "{}".into());
    let gathering = format!("{{\"aggregationRule\":{{\"clusterRoleSelectors\":[{selectors}]}},\"rules\":[{rules}]}}");
    run.input("many selectors of roles", "rbac", format!("ClusterRole\n{gathering}"));
    let subjects = many(bytes, |n| format!("{{\"kind\":\"User\",\"name\":\"{n}\"}}"));
    run.input("many subjects", "rbac", format!("RoleBinding\n{{\"subjects\":[{subjects}]}}"));

    let chains = many(bytes, |_| format!("{}1{}", "[".repeat(100), "]".repeat(100)));
    let nested = |times: usize| format!("..{}{}", "[?(@..".repeat(times), ")]".repeat(times));
    for times in [1, 2, 3, 8, 100] {
        run.input(&format!("filters nested {times} deep"), "jsonpath", format!("{}\n[{chains}]", nested(times)));
    }
    let steps = "..*[*][0,-1][?(@.a)]".repeat(100);
    run.input("a path of many steps", "jsonpath", format!("{steps}\n[{chains}]"));

    run.input("a selector of many values", "label_selector", format!("a in ({})", many(bytes, |n| n.to_string())));
    run.input("a selector of many terms", "label_selector", many(bytes, |n| format!("a{n}")));
    run.input("a field selector of many terms", "field_selector", many(bytes, |n| format!("a{n}=b")));
    run.input("a long quantity", "quantity", "9".repeat(bytes));
    run.input("a long quantity of noughts", "quantity", format!(".{}1", "0".repeat(bytes)));
}
