//! Inputs as large as a request may be, built so that each step compares each element with each other: all must finish
//! soon.
//!
//! Linear work finishes in a fraction of a second; quadratic work would take many minutes, and the last printed line
//! names it.
#![cfg(not(debug_assertions))]

#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::fmt::Write;

/// The size of the inputs; a request may have 3 MiB.
const BYTES: usize = 2_000_000;

/// `piece` for consecutive numbers, joined by commas, until the size is reached.
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

/// Like [`many`], in descending order.
fn falling(bytes: usize, piece: impl Fn(usize) -> String) -> String {
    let count = bytes / piece(999_999).len();
    (0..count).rev().map(piece).collect::<Vec<_>>().join(",")
}

fn ends_soon(name: &str, target: &str, input: impl AsRef<[u8]>) {
    let (_, run) = targets::TARGETS.iter().find(|(found, _)| *found == target).expect("a target of this name");
    println!("{name}");
    run(input.as_ref());
}

#[test]
fn decoding_ends_soon() {
    let twice = many(BYTES, |n| format!("\"{n}\":0,\"{n}\":1"));
    ends_soon("keys that stand twice", "json", format!("{{{twice}}}"));
    let key = "k".repeat(BYTES / 2);
    let twice = many(BYTES / 2, |n| format!("\"{n}\":0,\"{n}\":1"));
    ends_soon("keys that stand twice below a long one", "json", format!("{{\"{key}\":{{{twice}}}}}"));
    let again = many(BYTES / 2, |_| "\"a\":0".into());
    ends_soon("one key again and again below a long one", "json", format!("{{\"{key}\":{{{again}}}}}"));
    ends_soon("nothing but brackets", "json", "[".repeat(BYTES));
    ends_soon("lone surrogates", "json", format!("[{}]", many(BYTES, |_| "\"\\ud800\"".into())));

    let lines: String = (0..BYTES / 10).map(|n| format!("k{n}: 1\n")).collect();
    ends_soon("many lines of YAML", "yaml", lines);
    let lines: String = (0..BYTES / 20).map(|n| format!("k{n}: 1\nk{n}: 2\n")).collect();
    ends_soon("YAML keys that stand twice", "yaml", lines);
    ends_soon("YAML brackets", "yaml", "[".repeat(BYTES));
    ends_soon("YAML dashes", "yaml", "- ".repeat(BYTES / 2));
    ends_soon("YAML question marks", "yaml", "? ".repeat(BYTES / 2));
    ends_soon("YAML braces and keys", "yaml", "{a: ".repeat(BYTES / 4));
    ends_soon("YAML quotes", "yaml", "\"a\\".repeat(BYTES / 3));
    ends_soon("YAML anchors", "yaml", (0..BYTES / 20).map(|n| format!("- &a{n} x\n- *a{n}\n")).collect::<String>());
    ends_soon("YAML comments and blanks", "yaml", "#\n\n ".repeat(BYTES / 4));
    ends_soon("YAML colons", "yaml", "a: b: ".repeat(BYTES / 6));
    ends_soon("one long word of YAML", "yaml", "a\n".repeat(BYTES / 2));
    let merges = many(BYTES, |n| format!("<<: {{a{n}: 1}}"));
    ends_soon("YAML merges", "yaml", format!("{{{merges}}}"));
}

#[test]
fn checks_end_soon() {
    let key = "k".repeat(BYTES / 2);
    let unknown = many(BYTES / 2, |n| format!("\"{n}\":0"));
    let definition = "apiextensions.k8s.io/v1 CustomResourceDefinition\n";
    let document = format!("{{\"properties\":{{\"{key}\":{{{unknown}}}}}}}");
    let document = format!("{{\"spec\":{{\"versions\":[{{\"schema\":{{\"openAPIV3Schema\":{document}}}}}]}}}}");
    ends_soon("unknown fields below a long name", "check", format!("{definition}{document}"));

    let owners = many(BYTES, |n| {
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"K\",\"name\":\"{n}\",\"uid\":\"u\",\"controller\":true}}")
    });
    let create = "create json v1 configmaps default\n";
    let owned = format!("{create}{{\"metadata\":{{\"name\":\"a\",\"ownerReferences\":[{owners}]}}}}");
    ends_soon("many controllers", "decide", owned);
    let labels = many(BYTES, |n| format!("\"-{n}\":\"-\""));
    ends_soon("bad labels", "decide", format!("{create}{{\"metadata\":{{\"name\":\"a\",\"labels\":{{{labels}}}}}}}"));

    let finalizers = |from: usize| many(BYTES, |n| format!("\"a/{}\"", from + n));
    let body = |from| format!("{{\"metadata\":{{\"name\":\"a\",\"finalizers\":[{}]}}}}", finalizers(from));
    let deleted = format!(
        "{create}{}\n---\ndelete json v1 configmaps default a\n\n---\nupdate json v1 configmaps default a\n{}",
        body(0),
        body(1_000_000)
    );
    ends_soon("new finalizers on an object that goes", "decide", deleted);

    let ports = many(BYTES, |n| format!("{{\"port\":{n}}}"));
    let service =
        |ty: &str| format!("{{\"metadata\":{{\"name\":\"a\"}},\"spec\":{{\"type\":\"{ty}\",\"ports\":[{ports}]}}}}");
    let create = "create json v1 services default\n";
    ends_soon("more node ports than there are", "decide", format!("{create}{}", service("NodePort")));
    let twice =
        format!("{create}{}\n---\nupdate json v1 services default a\n{}", service("ClusterIP"), service("NodePort"));
    ends_soon("more node ports than there are, later", "decide", twice);

    let create = "create json v1 pods default\n";
    let pod = |spec: &str| format!("{create}{{\"metadata\":{{\"name\":\"a\"}},\"spec\":{{{spec}}}}}");
    let nothing = many(BYTES, |_| "{}".into());
    ends_soon("many containers of nothing", "decide", pod(&format!("\"containers\":[{nothing}]")));
    let container = |rest: &str| format!("\"containers\":[{{\"name\":\"a\",\"image\":\"a\",{rest}}}]");
    ends_soon("many mounts of nothing", "decide", pod(&container(&format!("\"volumeMounts\":[{nothing}]"))));
    let amounts = many(BYTES / 2, |n| format!("\"{n}\":\"-1\""));
    ends_soon("many bad amounts", "decide", pod(&container(&format!("\"resources\":{{\"limits\":{{{amounts}}}}}"))));
    let claims = many(BYTES / 2, |n| format!("{{\"name\":\"{n}\"}}"));
    let names =
        (0..64).map(|n| format!("{{\"name\":\"{n}{}\"}}", "n".repeat(BYTES / 128))).collect::<Vec<_>>().join(",");
    let claimed = container(&format!("\"resources\":{{\"claims\":[{claims}]}}"));
    ends_soon("claims that are none of long names", "decide", pod(&format!("{claimed},\"resourceClaims\":[{names}]")));
    let wrong = many(BYTES / 2, |n| format!("\"{n}\":{{\"type\":\"x\"}}"));
    let schema = format!(
        "{{\"type\":\"object\",\"properties\":{{\"{key}\":{{\"type\":\"object\",\"properties\":{{{wrong}}}}}}}}}"
    );
    let definition = format!(
        "create json apiextensions.k8s.io/v1 customresourcedefinitions -\n{{\"metadata\":{{\"name\":\"a.b.c\"}},\
         \"spec\":{{\"group\":\"b.c\",\"scope\":\"Cluster\",\"names\":{{\"plural\":\"a\",\"kind\":\"A\"}},\"versions\":[{{\"name\":\"v1\",\
         \"served\":true,\"storage\":true,\"schema\":{{\"openAPIV3Schema\":{schema}}}}}]}}}}"
    );
    ends_soon("many faults below a long name", "decide", definition);

    let versions = many(BYTES / 2, |_| "{}".into());
    let schema = format!("{{\"openAPIV3Schema\":{{\"required\":[{}]}}}}", many(BYTES / 2, |_| "\"\"".into()));
    let old = format!(
        "create json apiextensions.k8s.io/v1beta1 customresourcedefinitions -\n{{\"metadata\":{{\"name\":\"a.b\"}},\
         \"spec\":{{\"versions\":[{versions}],\"validation\":{schema}}}}}"
    );
    ends_soon("a schema for many versions", "decide", old);
}

#[test]
fn patches_end_soon() {
    let kind = "v1 Pod\n";
    let named = |from: usize| many(BYTES / 2, |n| format!("{{\"name\":\"{}\"}}", from + n));
    let pod = |containers: &str| format!("{{\"spec\":{{\"containers\":[{containers}]}}}}");
    let (live, same, other) = (pod(&named(100_000)), pod(&named(100_000)), pod(&named(500_000)));
    ends_soon("a long list merged with itself", "strategic_merge", format!("{kind}{live}\n{same}"));
    ends_soon("a long list merged with another", "strategic_merge", format!("{kind}{live}\n{other}"));
    let deletes = pod(&many(BYTES, |n| format!("{{\"name\":\"{}\",\"$patch\":\"delete\"}}", 500_000 + n)));
    ends_soon("a long list of deletions", "strategic_merge", format!("{kind}{live}\n{deletes}"));
    let long = "x".repeat(BYTES / 2);
    let pod = |variables: &str| format!("{{\"spec\":{{\"containers\":[{{\"name\":\"a\",\"env\":[{variables}]}}]}}}}");
    let (live, patch) = (pod(&format!("{{\"name\":\"{long}\"}}")), pod(&named(100_000)));
    ends_soon("many new elements beside one with a long name", "strategic_merge", format!("{kind}{live}\n{patch}"));
    let texts = |from: usize| many(BYTES / 2, |n| format!("\"{}\"", from + n));
    let live = format!("{{\"metadata\":{{\"finalizers\":[{}]}}}}", texts(100_000));
    let patch = format!("{{\"metadata\":{{\"$deleteFromPrimitiveList/finalizers\":[{}]}}}}", texts(500_000));
    ends_soon("texts to delete", "strategic_merge", format!("{kind}{live}\n{patch}"));
    let patch = format!("{{\"metadata\":{{\"$setElementOrder/finalizers\":[{}]}}}}", texts(500_000));
    ends_soon("texts to order", "strategic_merge", format!("{kind}{live}\n{patch}"));
    let fields = |from: usize| many(BYTES / 2, |n| format!("\"{}\":\"\"", from + n));
    let live = format!("{{\"metadata\":{{\"labels\":{{{}}}}}}}", fields(100_000));
    let keys = texts(500_000);
    let patch = format!("{{\"metadata\":{{\"labels\":{{\"$retainKeys\":[{keys}],{}}}}}}}", fields(500_000));
    ends_soon("keys to retain", "strategic_merge", format!("{kind}{live}\n{patch}"));

    let list = many(BYTES / 2, |_| "{}".into());
    let moves = many(400_000, |n| {
        let (from, to) = if n % 2 == 0 { ("a", "b") } else { ("b", "a") };
        format!("{{\"op\":\"move\",\"from\":\"/{from}\",\"path\":\"/{to}\"}}")
    });
    ends_soon("a large value moved to and fro", "json_patch", format!("{{\"a\":[{list}]}}\n[{moves}]"));
    let inserts = many(400_000, |_| "{\"op\":\"add\",\"path\":\"/a/0\",\"value\":1}".into());
    ends_soon("inserts before a long list", "json_patch", format!("{{\"a\":[{list}]}}\n[{inserts}]"));
}

#[test]
fn applying_ends_soon() {
    let pod = |variables: &str| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"p\"}},\"spec\":{{\"containers\":[{{\"name\":\
             \"a\",\"env\":[{variables}]}}]}}}}"
        )
    };
    let variables = falling(BYTES / 2, |n| format!("{{\"name\":\"{n:06}\"}}"));
    ends_soon("a list in falling order", "apply", format!("v1 Pod!\n{{}}\n{}", pod(&variables)));
    let apply = format!("patch apply v1 pods default p force\n{}", pod(&variables));
    ends_soon("a list in falling order, twice", "decide", format!("{apply}\n---\n{apply}"));

    let managers = |version: &str| {
        many(BYTES, |n| {
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
        ends_soon(&format!("many managers of {version}"), "decide", format!("{update}\n---\n{apply}"));
    }
    let elements = falling(BYTES, |n| format!("\"k:{{\\\"b\\\":{n:06},\\\"a\\\":1}}\":{{}}"));
    ends_soon("elements in another order than their canonical ones", "field_set", format!("{{{elements}}}"));
}

#[test]
fn rules_end_soon() {
    let texts = |bytes| many(bytes, |n| format!("\"{n}\""));
    let part = texts(BYTES / 4);
    let rule =
        format!("{{\"verbs\":[{part}],\"apiGroups\":[{part}],\"resources\":[{part}],\"resourceNames\":[{part}]}}");
    ends_soon("a rule of many parts", "rbac", format!("Role\n{{\"rules\":[{rule}]}}"));
    let rules = many(BYTES, |n| format!("{{\"verbs\":[\"get\"],\"apiGroups\":[\"\"],\"resources\":[\"{n}\"]}}"));
    ends_soon("many rules", "rbac", format!("Role\n{{\"rules\":[{rules}]}}"));
    let selectors = many(BYTES, |_| "{}".into());
    let gathering = format!("{{\"aggregationRule\":{{\"clusterRoleSelectors\":[{selectors}]}},\"rules\":[{rules}]}}");
    ends_soon("many selectors of roles", "rbac", format!("ClusterRole\n{gathering}"));
    let subjects = many(BYTES, |n| format!("{{\"kind\":\"User\",\"name\":\"{n}\"}}"));
    ends_soon("many subjects", "rbac", format!("RoleBinding\n{{\"subjects\":[{subjects}]}}"));

    let chains = many(BYTES, |_| format!("{}1{}", "[".repeat(100), "]".repeat(100)));
    let nested = |times: usize| format!("..{}{}", "[?(@..".repeat(times), ")]".repeat(times));
    for times in [1, 2, 3, 8, 100] {
        ends_soon(&format!("filters nested {times} deep"), "jsonpath", format!("{}\n[{chains}]", nested(times)));
    }
    let steps = "..*[*][0,-1][?(@.a)]".repeat(100);
    ends_soon("a path of many steps", "jsonpath", format!("{steps}\n[{chains}]"));

    ends_soon("a selector of many values", "label_selector", format!("a in ({})", many(BYTES, |n| n.to_string())));
    ends_soon("a selector of many terms", "label_selector", many(BYTES, |n| format!("a{n}")));
    ends_soon("a field selector of many terms", "field_selector", many(BYTES, |n| format!("a{n}=b")));
    ends_soon("a long quantity", "quantity", "9".repeat(BYTES));
    ends_soon("a long quantity of noughts", "quantity", format!(".{}1", "0".repeat(BYTES)));
}
