//! Tests of how YAML bodies are decoded.

use holdfast_value::json;
use proptest::prelude::*;

use super::*;

#[test]
fn values() {
    let cases = [
        ("", json!(null)),
        ("a: 1\nb: [x, 'y', \"z\"]\n", json!({"a": 1, "b": ["x", "y", "z"]})),
        (
            "a: yes\nb: 'yes'\nc: \"no\"\nd: off\ne: !!str yes",
            json!({"a": true, "b": "yes", "c": "no", "d": false, "e": "yes"}),
        ),
        (
            "a: 0644\nb: '0644'\nc: 0x10\nd: 1_000\ne: 0o17\nf: -010",
            json!({"a": 420, "b": "0644", "c": 16, "d": 1000, "e": 15, "f": -8}),
        ),
        ("a: 1e3\nb: 1.5\nc: 1.0", json!({"a": 1000, "b": 1.5, "c": 1})),
        ("a: ~\nb:\nc: null", json!({"a": null, "b": null, "c": null})),
        ("1: a\ntrue: b\n1.5: c\nyes: d\n", json!({"1": "a", "true": "d", "1.5": "c"})),
        ("a: 2001-01-01\nb: 1:30\nc: 1.2.3\nd: 0_x", json!({"a": "2001-01-01", "b": "1:30", "c": "1.2.3", "d": "0_x"})),
        ("a: |\n  yes\nb: é yes\nc: yes", json!({"a": "yes\n", "b": "é yes", "c": true})),
        ("x: &x {a: 1, b: 2}\nz:\n  <<: *x\n  b: 3", json!({"x": {"a": 1, "b": 2}, "z": {"a": 1, "b": 3}})),
        ("a: 1\n---\nb: 2\n", json!({"a": 1})),
        ("{\"a\": [1, \"no\"]}", json!({"a": [1, "no"]})),
        ("{\"a\": 1.0, \"<<\": {\"b\": \"\\u003c\"}}", json!({"a": 1, "<<": {"b": "<"}})),
        ("a: !custom 5", json!({"a": 5})),
        ("\u{feff}a: 1", json!({"a": 1})),
        ("\u{feff}{\"a\": \"b\"}", json!({"a": "b"})),
        (
            "a: !!binary aGVsbG8=\nb: !!binary \"aGk=\"\nc: &c !!binary aGk=",
            json!({"a": "hello", "b": "hi", "c": "hi"}),
        ),
        (
            "a: !!int 0644\nb: {c: !!int 1_0, d: !!int 0b11}\ne: !!int 7",
            json!({"a": 420, "b": {"c": 10, "d": 3}, "e": 7}),
        ),
        ("a: !!str yes\nb: !!str &x no\nc: &y !!str 1", json!({"a": "yes", "b": "no", "c": "1"})),
        ("a: '\\/'\nb: \\/\nc: \"\\\\/\"", json!({"a": "\\/", "b": "\\/", "c": "\\/"})),
        ("a:b: 1\n'c: d': 2\ne::f: 3\nhttp://x/y: 4", json!({"a:b": 1, "c: d": 2, "e::f": 3, "http://x/y": 4})),
        ("x: &x {a: 1, b: 2}\nz:\n  b: 3\n  <<: *x", json!({"x": {"a": 1, "b": 2}, "z": {"a": 1, "b": 2}})),
        ("z:\n  <<: [{a: 1}, {a: 2, b: 2}]", json!({"z": {"a": 1, "b": 2}})),
        ("%YAML 1.1\n---\na: 1", json!({"a": 1})),
        (
            "a: [001:db8::, 2001:db8::1, fe80::]\nb: {c: 001:db8::, d: fe80::1}\n",
            json!({
            "a": ["001:db8::", "2001:db8::1", "fe80::"], "b": {"c": "001:db8::", "d": "fe80::1"}}),
        ),
        ("é: [é, it's::, x y::]\nb: !!int 010\n", json!({"é": ["é", "it's::", "x y::"], "b": 8})),
        ("[a:, {b:}]", json!(["a:", {"b:": null}])),
    ];
    for (text, expected) in cases {
        assert_eq!(yaml(text.as_bytes()).map(|d| d.value), Ok(expected), "{text}");
    }
}

#[test]
fn duplicates_are_told_with_their_lines() {
    let decoded = yaml(b"a: 1\nb:\n- c: 1\n  c: 2\na: 3\n").unwrap();
    assert_eq!(decoded.value, json!({"a": 3, "b": [{"c": 2}]}));
    assert_eq!(&*decoded.duplicates, ["b[0].c", "a"]);
    let decoded = yaml(b"{\"a\": 1,\n\"a\": 2}").unwrap();
    assert_eq!(decoded.strict_errors().into_vec(), ["yaml: unmarshal errors:\n  line 2: key \"a\" already set in map"]);
    let decoded = yaml(b"a: 1\nb:\n- c: 1\n  c: 2\na: 3\n").unwrap();
    assert_eq!(
        decoded.strict_errors().into_vec(),
        ["yaml: unmarshal errors:\n  line 4: key \"c\" already set in map\n  line 5: key \"a\" already set in map"]
    );
    // A message names the line of the repeated key's value. The value of a merged entry is in the line in which the
    // merged mapping is written.
    let rows = [
        ("a: 1\na:\n  b: 2", "line 3: key \"a\" already set in map"),
        ("a: 1\na:\n- b", "line 3: key \"a\" already set in map"),
        ("x: &x {a: 1}\nz:\n  <<: *x\n  a: 3", "line 4: key \"a\" already set in map"),
        ("x: &x {a: 1}\nz:\n  a: 3\n  <<: *x", "line 1: key \"a\" already set in map"),
        ("x: &x {a: 1}\nz:\n  <<: [*x, {a: 3}]", "line 1: key \"a\" already set in map"),
        ("x: &x {a: 1}\nz: 1\nz: *x", "line 3: key \"z\" already set in map"),
    ];
    for (text, warning) in rows {
        let decoded = yaml(text.as_bytes()).unwrap();
        assert_eq!(super::super::warnings(decoded.strict_errors()).into_vec(), [warning], "{text}");
    }
}

#[test]
fn complaints() {
    let cases: [(&[u8], &str); 10] = [
        (b"a: b: c", "yaml: mapping values are not allowed in this context"),
        (b"a: [1\nb: 2", "yaml: line 1: did not find expected ',' or ']'"),
        (b"a: .inf", "json: unsupported value: +Inf"),
        (b"\xff", "yaml: invalid leading UTF-8 octet"),
        (b"a: \"\\/\"", "yaml: found unknown escape character"),
        (b"a: 1\nb: 2\nc: \"\\/\"", "yaml: line 3: found unknown escape character"),
        (b"{\"a\": \"\\/\"}", "yaml: found unknown escape character"),
        (b"%YAML 1.2\n---\na: 1", "yaml: found incompatible YAML document"),
        (b"a: !!binary _", "yaml: !!binary value contains invalid base64 data"),
        (b"a: 1\n<<: 5", "yaml: map merge requires map or sequence of maps as the value"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(yaml(bytes), Err(DecodeError(expected.to_string())), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn aliases_cannot_swell_a_document() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    let excessive = Err(DecodeError("yaml: document contains excessive aliasing".to_string()));
    assert_eq!(yaml(bomb.as_bytes()), excessive);
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(1_000));
    assert_eq!(yaml(long.as_bytes()), excessive);
    assert!(yaml(b"a: &a [1, 2]\nb: [*a, *a]\n").is_ok());
}

#[test]
fn many_small_values_are_refused_before_they_are_parsed() {
    let too_large = Err(DecodeError(format!("yaml: {TOO_LARGE}")));
    for dense in ["- ", "? ", ": ", "-\n", "a:\n", "[],", "{a,b},", "[:,],"] {
        assert_eq!(yaml(dense.repeat(400_000).as_bytes()), too_large, "{dense:?}");
    }
    let maps = format!("[{}]", "{a: 1}, ".repeat(120_000));
    assert_eq!(yaml(maps.as_bytes()), too_large);
    // As JSON, a document with the same number of values is accepted, and it means the same as in YAML.
    let lists = format!("{{\"a\": [{}1.0, \"no\"]}}", "1,".repeat(400_000));
    let decoded = yaml(lists.as_bytes()).map(|decoded| decoded.value).unwrap();
    assert_eq!(decoded["a"].as_array().map(Vec::len), Some(400_002));
    assert_eq!((&decoded["a"][400_000], &decoded["a"][400_001]), (&json!(1), &json!("no")));
    let ordinary = "      - name: some-name\n        image: registry.example.com/team/some-name:1.2.3\n";
    assert!(yaml(ordinary.repeat((3 << 20) / ordinary.len()).as_bytes()).is_ok());
}

#[test]
fn depth_is_limited() {
    let too_deep = Err(DecodeError("yaml: exceeded max depth".to_string()));
    for deep in ["[".repeat(5_000), "{a: ".repeat(300_000), format!("{}{}", "[".repeat(200), "]".repeat(200))] {
        assert_eq!(yaml(deep.as_bytes()), too_deep);
    }
    let brackets_in_text = json!({"a": "[".repeat(5_000)});
    assert_eq!(yaml(brackets_in_text.to_string().as_bytes()).map(|d| d.value), Ok(brackets_in_text));
}

fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-9i64..9).prop_map(|number| Value::from(number as f64)),
        "([ -~]|\n|\t|<<|no|é|\u{85}|\u{1F600}){0,8}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 40, 6, |inner| {
        let keys = "([a-z0-9.:#\"\\\\é -]|<<|no|~){0,6}";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    value.prop_map(|value| json!({ "a": value }))
}

proptest! {
    #[test]
    fn json_reads_as_the_parser_of_yaml_reads_it(document in documents(), is_pretty: bool) {
        let text = if is_pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
        let text = text.expect("a document");
        prop_assert_eq!(yaml(text.as_bytes()), yaml(format!("# \n{text}").as_bytes()));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = yaml(&bytes);
    }

    #[test]
    fn nothing_like_yaml_panics(text in "([a-c0-9&*!<>|{}\\[\\],:#'\"._~é +-]|\n|: |- |&a |\\*a|<<: ){0,40}") {
        let _ = yaml(text.as_bytes());
    }
}
