use super::*;
use holdfast_value::json;

#[test]
fn queries_give_what_jq_gives() {
    let pod = json!({
        "metadata": {"labels": {"a.b/c": "x"}, "ownerReferences": [{"kind": "Job"}, {"kind": "Other"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}],
            "count": 3},
    });
    let rows = [
        (".", json!([pod])),
        (".metadata.labels[\"a.b/c\"]", json!(["x"])),
        (".metadata.labels.\"a.b/c\"", json!(["x"])),
        (".metadata.ownerReferences.[].kind", json!(["Job", "Other"])),
        (".metadata.ownerReferences[0].kind", json!(["Job"])),
        (".metadata.ownerReferences[-1].kind", json!(["Other"])),
        (".status.conditions.[] | select( .type == \"Ready\" ) | .status", json!(["True"])),
        (".status.conditions[] | select(.type == \"Ready\" and .status != \"True\")", json!([])),
        (".metadata.deletionTimestamp", json!([null])),
        (".missing.deep.er", json!([null])),
        // `null` has no elements, so the query stops and gives no values.
        (".missing.[].kind", json!([])),
        (".missing[]?", json!([])),
        (".missing // \"none\"", json!(["none"])),
        (".status.count > 2, (.status.count | tostring)", json!([true, "3"])),
        ("[.status.conditions[].type] | length", json!([2])),
        (".status.conditions | map(.type) | join(\",\")", json!(["Ready,Other"])),
        (".status.conditions | any(.status == \"False\")", json!([true])),
        ("if .status.count == 3 then \"three\" else \"other\" end", json!(["three"])),
        (".metadata.labels | keys", json!([["a.b/c"]])),
        (".status.count - 1", json!([2])),
        (".status | has(\"count\") | not", json!([false])),
    ];
    for (text, wanted) in rows {
        let query = Query::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        let found: Value = query.values(&pod, &Query::budget()).expect(text).into_iter().map(Cow::into_owned).collect();
        assert_eq!(found, wanted, "{text}");
    }
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    for (text, complaint) in [
        ("def f: f; f", "':' in query"),
        ("input", "function input/0"),
        ("range(10)", "function range/1"),
        (".a | ", "ends where a term"),
        (".a[", "ends where a term"),
        (".a b", "unexpected b"),
        ("{a: 1}", "'{' in query"),
        ("$x", "'$' in query"),
    ] {
        let error = Query::parse(text).expect_err(text);
        assert!(error.contains(complaint), "{text}: {error}");
    }
    assert!(Query::parse(&"(".repeat(2000)).is_err());
    assert!(Query::parse(&"[".repeat(2000)).is_err());
    assert!(Query::parse(&".a".repeat(1000)).is_err());
    assert!(Query::parse(&"if ".repeat(1000)).is_err());
}

#[test]
fn a_query_that_multiplies_gives_nothing() {
    let many: Value = (0..2000).map(Value::from).collect();
    let query = Query::parse("[.[] == .[]] | length").expect("a query");
    assert_eq!(query.values(&many, &Query::budget()), Err(Spent));
}

#[test]
fn the_path_of_a_query_is_its_leading_names() {
    let path = |text| Query::parse(text).expect("a query").path().join(".");
    assert_eq!(path(".metadata.labels[\"a.b/c\"]"), "metadata.labels.a.b/c");
    assert_eq!(path(".status.conditions.[] | select(.type == \"Ready\") | .status"), "status.conditions");
    assert_eq!(path("1"), "");
}

/// Every function counts its work, so a query that exceeds the budget always stops at the same point.
#[test]
fn work_ends_at_the_same_place_for_every_function() {
    let texts = |count: usize, text: &str| vec![text.to_owned(); count];
    let document = json!({
        "text": "b".repeat(1_000_000), "many": texts(100_000, "aa"), "long": texts(3_000, &"a".repeat(1_000)),
        "map": (0..50_000).map(|number| (format!("k{number}"), json!(1))).collect::<holdfast_value::Map>(),
    });
    let spent = [
        ".text | (split(\"\") - (ascii_downcase | split(\"\")))",
        "[.many[]] - [.many[]]",
        "if .long[] then tostring else 0 end | length",
        "[.many, .many, .many, .many] | add",
        ".many | map(. + \"x\") | length",
        ".many | (contains([\"a\", \"b\"]), contains([\"b\"]))",
        "[.long, .long, .long] | length",
        "(.text | split(\"\"))? // \"none\"",
        ".long | [min, max, min, max]",
    ];
    for text in spent {
        let query = Query::parse(text).expect(text);
        assert_eq!(query.values(&document, &Query::budget()), Err(Spent), "{text}");
    }
    for text in
        [".text | length", ".many | length", ".long[0]", ".many | add | length", ".long | map(length) | add", ".map.k7"]
    {
        let query = Query::parse(text).expect(text);
        assert!(query.values(&document, &Query::budget()).is_ok(), "{text}");
    }
}
