//! Tests of the limits that protect the server against untrusted expressions.

use super::*;

#[test]
fn a_spent_budget_ends_everything() {
    let (schema, document) = (schema(), document());
    let environment = Environment::kubernetes().variable("self", schema.clone());
    for source in ["self.ints.all(x, x > 0)", "self.ints.all(x, x > 0) || true", "self.ints.exists(x, x > 7) && false"]
    {
        let program = compile(source, &environment).unwrap();
        let value = Value::json(&document, &schema).unwrap();
        assert_eq!(program.eval(&[value], &mut Budget::new(8)).unwrap_err(), EvalError::Cost, "{source}");
    }
    // Each level of these lists contains the level below twice, so comparing all items one by one would never end.
    let twice: String = (0..40).map(|level| format!(".map(x{level}, [x{level}, x{level}])")).collect();
    let source = format!("dyn([0]{twice}) == dyn([0]{twice})");
    let program = compile(&source, &Environment::kubernetes()).unwrap();
    assert_eq!(program.eval(&[], &mut Budget::new(100_000)).unwrap_err(), EvalError::Cost);
    // Each step doubles the length of these lists, so that without a limit the evaluation would never end.
    let doubled: String = (0..100).map(|level| format!(".map(x{level}, x{level} + x{level})")).collect();
    let program = compile(&format!("[[0]]{doubled}.size()"), &Environment::kubernetes()).unwrap();
    assert_eq!(program.eval(&[], &mut Budget::new(100_000)).unwrap_err(), EvalError::Cost);
}

/// Evaluates calls that cost only a unit or two in Kubernetes for any amount of data, in loops over thousands of items.
#[test]
fn work_that_costs_do_not_show_is_bounded() {
    let text = Type::String.sized(3 << 20);
    let fields = [
        ("items", Type::list(Type::Int)),
        ("text", text.clone()),
        ("pattern", text.clone()),
        ("labels", Type::map(Type::String, text)),
        ("set", declared(Type::list(Type::String), None, false, ListKind::Set)),
    ];
    let schema = Type::object("self", fields);
    let names: Vec<String> = (0..20_000).map(|n| format!("n{n}")).collect();
    let labels: holdfast_value::Map = names.iter().map(|name| (name.clone(), "".into())).collect();
    let document = json!({
        "items": vec![0; 50_000], "text": "é".repeat(1 << 18), "pattern": "\\pL{1000}", "labels": labels, "set": names,
    });
    let environment = Environment::kubernetes().variable("self", schema.clone());
    for source in [
        "self.items.all(i, self.text.size() > i)",
        "self.items.all(i, self.text.charAt(200000) == 'é')",
        "self.items.all(i, !'a'.matches(self.pattern))",
        "self.items.all(i, 'a'.find(self.pattern) == 'a')",
        "self.items.map(i, ''.replace('', self.text)).size() > 0",
        "self.items.map(i, '%s'.format([self.text])).size() > 0",
        "self.items.all(i, (self.set + self.set).size() > 0)",
        "self.items.all(i, self.labels.exists(k, true))",
        "self.items.all(i, !matches(self.text, '^(a|b)*c'))",
        "self.items.all(i, isURL(self.text) || true)",
        "[self.items.map(i, self.items)].all(l, l.flatten().size() > 0)",
        "self.items.distinct().size() > 0",
        "[url('https://a/?' + self.text)].all(u, self.items.all(i, u.getQuery().size() > 0))",
    ] {
        let program = compile(source, &environment).unwrap();
        let value = Value::json(&document, &schema).unwrap();
        let result = program.eval(&[value], &mut Budget::new(1_000_000));
        assert_eq!(result.map(|value| show(&value)), Err(EvalError::Cost), "{source}");
    }
    // These comparisons stop at the first difference, so the expressions cost little.
    for source in ["self.items.all(i, self.text != '')", "self.items.all(i, self.labels != {})"] {
        let program = compile(source, &environment).unwrap();
        let value = Value::json(&document, &schema).unwrap();
        let result = program.eval(&[value], &mut Budget::new(1_000_000));
        assert_eq!(result.map(|value| show(&value)).unwrap(), "true", "{source}");
    }
}

#[test]
fn programs_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Program>();
}

#[test]
fn a_hundred_faults_are_enough() {
    let source = format!("[{}]", "x,".repeat(40_000));
    assert_eq!(compile(&source, &Environment::kubernetes()).unwrap_err().len(), 100);
}

/// The deepest trees that the parser accepts are compiled, evaluated and dropped on a small stack.
#[test]
fn depth_does_not_exhaust_the_stack() {
    let nested = |open: &str, inner: &str, close: &str, times: usize| {
        format!("{}{inner}{}", open.repeat(times), close.repeat(times))
    };
    let mut sources =
        vec![nested("(", "1", ")", 100_000), nested("!", "true", "", 99_000), nested("[", "", "]", 40_000)];
    for times in [200, 249, 295, 1000, 20_000] {
        sources.extend([
            nested("(", "1", ")", times),
            nested("[", "1", "]", times),
            nested("{'a': ", "1", "}", times),
            nested("-(", "1", ")", times),
            nested("dyn(", "1", ")", times),
            nested("true ? true : ", "true", "", times),
            nested("[1].all(x, ", "true", ")", times),
            nested("optional.of(1).optMap(x, ", "1", ")", times),
            nested("self.anything[", "'a'", "]", times),
            nested("", "1", " + 1", times),
            nested("", "self.anything", ".a", times),
            nested("", "self.anything", ".map(x, x)", times),
            nested("", "self.anything", ".a.matches('a')", times),
            nested("", "true", " && true", times),
            nested("", "self.anything", "[0]", times),
            nested("", "[0]", ".map(x, [x])", times),
            nested("", "optional.of(0)", ".optMap(x, x)", times),
            nested("[1].sortBy(x, ", "1", ")", times),
            nested("", "self.anything", ".sortBy(x, x)", times),
            nested("google.protobuf.Int64Value{value: ", "1", "}", times),
            nested("'%s'.format([", "1", "])", times),
        ]);
    }
    let run = move || {
        for source in &sources {
            let (result, _) = evaluate(source);
            let is_chain = source.starts_with("true &&") && source.len() < 90_000;
            assert!(!is_chain || result == "true", "logic is balanced: {result}");
        }
        let (result, _) = evaluate(&nested("(", "1", ")", 249));
        assert_eq!(result, "1");
        assert_eq!(evaluate(&nested("(", "1", ")", 250)).0, "faults: expression recursion limit exceeded: 250");
        let long = format!("'{}'", "é".repeat(99_999));
        assert_eq!(evaluate(&long).0, "faults: expression code point size exceeds limit: size: 100001, limit 100000");
    };
    std::thread::Builder::new().stack_size(3 << 19).spawn(run).unwrap().join().unwrap();
}

/// Arbitrary input must never cause a panic.
mod properties {
    use super::*;
    use proptest::prelude::*;

    const PIECES: &[&str] = &[
        "self",
        ".",
        "?",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ",",
        ":",
        "+",
        "-",
        "*",
        "/",
        "%",
        "!",
        "==",
        "<",
        "&&",
        "||",
        " in ",
        "1",
        "2u",
        "1.5",
        "-9223372036854775808",
        "'a'",
        "b'a'",
        "'👑'",
        "r'\\d'",
        "true",
        "null",
        "x",
        "y",
        "int",
        "strings",
        "items",
        "labels",
        "anything",
        "time",
        "duration",
        "set",
        "has(",
        ".all(x, ",
        ".map(x, ",
        ".filter(x, ",
        ".exists_one(x, ",
        ".transformMap(x, y, ",
        ".optMap(x, ",
        "optional.of(",
        "optional.none()",
        ".value()",
        ".size()",
        ".matches(",
        ".substring(",
        ".split(",
        ".replace(",
        ".format(",
        ".charAt(",
        ".indexOf(",
        "size(",
        "dyn(",
        "string(",
        "timestamp(",
        "duration('1h')",
        ".getHours(",
        "type(",
        "sets.contains(",
        "self.int",
        "self.string",
        "self.ints",
        "self.items[0].k",
        "self.?absent.k",
        "'",
        "\\",
        "\"",
        "'''",
        "`",
        "\n",
        "//",
        "é",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        #[test]
        fn pieces_in_any_order(pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..24)) {
            evaluate(&pieces.concat());
        }

        #[test]
        fn damaged_expressions(
            which in 0..SOURCES.len(),
            at in 0..60usize,
            cut in 0..4usize,
            piece in proptest::sample::select(PIECES),
        ) {
            let characters: Vec<char> = SOURCES[which].chars().collect();
            let at = at.min(characters.len());
            let after = (at + cut).min(characters.len());
            let mut source: String = characters[..at].iter().collect();
            source.push_str(piece);
            source.extend(&characters[after..]);
            evaluate(&source);
        }
    }

    const SOURCES: &[&str] = &[
        "self.items.all(m, !has(m.v2) || m.v2 == 'z')",
        "self.ints.transformList(i, x, i > 0, i * x) + [1, 2]",
        "self.ints[?0].optFlatMap(x, self.ints[?x]).orValue(7) + 5",
        "'%s is %d, %.2f %x %b %%'.format([dyn('a'), 5, 1.5, 255, 5])",
        "self.time.getHours('+05:30') < 23 ? {'a': self.int} : {'b': 3}",
        "self.string.substring(0, 4).replace('o', 'x').indexOf('x', 1) == 1",
        "string(self.duration) + string(self.time + duration('1h'))",
        "(self.set + self.set2).exists(x, x in ['a', 'b']) && self.keyed == self.keyed2",
        "self.string.matches('^[a-z\\\\d]{1,3}(x|y)*$')",
    ];
}
