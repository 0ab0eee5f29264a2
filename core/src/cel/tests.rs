//! Tables: what expressions give, what compiling them complains of, what they cost.

use super::types::{Declared, ListKind};
use super::*;
use serde_json::{Value as Json, json};
use std::sync::Arc;

fn declared(ty: Type, max_size: Option<u64>, nullable: bool, list: ListKind) -> Type {
    Type::Declared(Arc::new(Declared { ty, max_size, nullable, list }))
}

/// What documents of all the tests have, with types that JSON alone does not tell.
fn schema() -> Type {
    let item = Type::object("item", [("k", Type::String), ("v", Type::String), ("v2", Type::String)]);
    let items = Type::list(item.clone());
    Type::object(
        "self",
        [
            ("bool", Type::Bool),
            ("int", Type::Int),
            ("int2", Type::Int),
            ("double", Type::Double),
            ("string", Type::String),
            ("string2", Type::String),
            ("bytes", Type::Bytes),
            ("time", Type::Timestamp),
            ("time2", Type::Timestamp),
            ("date", Type::Timestamp),
            ("duration", Type::Duration),
            ("ints", Type::list(Type::Int)),
            ("ints2", Type::list(Type::Int)),
            ("strings", Type::list(Type::String)),
            ("set", declared(Type::list(Type::String), Some(10), false, ListKind::Set)),
            ("set2", declared(Type::list(Type::String), Some(10), false, ListKind::Set)),
            ("items", items.clone()),
            ("keyed", declared(items.clone(), None, false, ListKind::Map(vec!["k".into()]))),
            ("keyed2", declared(items, None, false, ListKind::Map(vec!["k".into()]))),
            ("item", item.clone()),
            ("absent", item),
            ("counts", Type::map(Type::String, Type::Int)),
            ("labels", Type::map(Type::String, Type::String)),
            ("nullable", declared(Type::Timestamp, None, true, ListKind::Atomic)),
            ("never_null", declared(Type::Int, None, false, ListKind::Atomic)),
            ("either", Type::Dyn),
            ("anything", Type::Dyn),
        ],
    )
}

fn document() -> Json {
    json!({
        "bool": true, "int": 5, "int2": 9_223_372_036_854_775_807i64, "double": 10, "string": "Rook takes 👑",
        "string2": "Rook takes 👑", "bytes": "QUI=", "time": "2011-08-18T19:03:37.010000000+01:00",
        "time2": "2011-08-18T18:03:37.01Z", "date": "1997-07-16", "duration": "1h2m3s4ms", "ints": [1, 2, 3],
        "ints2": [1, 2, 3], "strings": ["a", "b"], "set": ["a", "b", "c"], "set2": ["a", "c", "b"],
        "items": [{"k": "a1", "v": "b1"}, {"k": "a2", "v": "b2"}, {"k": "a3", "v": "b3", "v2": "z"}],
        "keyed": [{"k": "a", "v": "1"}, {"k": "b", "v": "2"}], "keyed2": [{"k": "b", "v": "3"}, {"k": "a", "v": "1"}],
        "item": {"k": "a1", "v": "b1"}, "counts": {"b": 1, "d": 2}, "labels": {"x": "1", "y": "2"}, "nullable": null,
        "never_null": null, "either": "80%", "anything": {"deep": [1, 2.5, "x", null]},
    })
}

/// What an expression gives, as text: strings in quotes, errors after `error:`.
fn evaluate(source: &str) -> (String, u64) {
    let (schema, document) = (schema(), document());
    let environment = Environment::kubernetes().variable("self", schema.clone());
    let program = match compile(source, &environment) {
        Ok(program) => program,
        Err(faults) => return (format!("faults: {}", faults[0].message), 0),
    };
    let mut budget = Budget::new(1_000_000);
    let value = Value::json(&document, &schema).unwrap();
    let text = match program.eval(&[value], &mut budget) {
        Ok(value) => show(&value),
        Err(error) => format!("error: {error}"),
    };
    (text, 1_000_000 - budget.left)
}

fn show_or_error(value: Result<Value<'_>, EvalError>) -> String {
    value.map_or_else(|error| format!("error: {error}"), |value| show(&value))
}

fn show(value: &Value<'_>) -> String {
    let all = |items: Vec<String>| items.join(", ");
    match value {
        Value::String(text) => format!("'{text}'"),
        Value::Uint(value) => format!("{value}u"),
        Value::Double(_) => {
            let text = functions::as_text(value);
            if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') { text + ".0" } else { text }
        }
        Value::Bytes(bytes) => format!("b{:?}", String::from_utf8_lossy(bytes)),
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(value)) => format!("optional {}", show(value)),
        value if value.list_len().is_some() => {
            format!("[{}]", all(value.items().map(|item| show_or_error(item)).collect()))
        }
        value if value.is_map() => {
            let entry = |key: &Value<'_>| {
                format!("{}: {}", show(key), show_or_error(value.get(key).map(|value| value.unwrap_or(Value::Null))))
            };
            format!("{{{}}}", all(value.keys().iter().map(entry).collect()))
        }
        value => functions::as_text(value),
    }
}

fn check_results(table: &[(&str, &str)]) {
    let wrong: Vec<String> = table
        .iter()
        .map(|(source, expected)| (source, expected, evaluate(source).0))
        .filter(|(_, expected, got)| *expected != got)
        .map(|(source, expected, got)| format!("{source}\n  expected {expected}\n  but got  {got}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn literals_and_operators() {
    check_results(&[
        ("1 + 2 * 3 - 4", "3"),
        ("(1 + 2) * 3", "9"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("7.0 / 2.0", "3.5"),
        ("1.0 / 0.0", "+Inf"),
        ("7u % 4u", "3u"),
        ("0x1F + 0xau == 0", "faults: found no matching overload for '_+_' applied to '(int, uint)'"),
        ("0x1F", "31"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("9223372036854775808", "faults: invalid int literal"),
        ("--1", "1"),
        ("-(-1)", "1"),
        ("!!true", "true"),
        ("!true", "false"),
        ("9223372036854775807 + 1", "error: integer overflow"),
        ("-9223372036854775807 - 2", "error: integer overflow"),
        ("9223372036854775807 * 2", "error: integer overflow"),
        ("0u - 1u", "error: unsigned integer overflow"),
        ("1 / 0", "error: division by zero"),
        ("1 % 0", "error: modulus by zero"),
        ("'a' + \"b\" + '''c''' + r'\\d'", r"'abc\d'"),
        (r"'\x41\u00e9\101\n' == 'Aé' + 'A\n'", "true"),
        (r"b'\xff\101'.size()", "2"),
        ("b'a' + b\"b\"", "b\"ab\""),
        ("1 < 1.5 && 2u > 1 && 1.0 <= 1", "true"),
        ("'a' < 'b' && b'a' <= b'a' && false < true", "true"),
        ("1 == 1 && 1 != 2 && 'a' != 'b'", "true"),
        ("dyn(1) == 1.0 && dyn(1u) == 1", "true"),
        ("dyn(1) == 'a'", "false"),
        ("dyn(9223372036854775807) == 9223372036854775807.0", "false"),
        ("dyn(1) + 'a'", "error: no such overload"),
        ("dyn(0.0/0.0) < 1.0", "error: NaN values cannot be ordered"),
        ("[1, 2] + [3]", "[1, 2, 3]"),
        ("([1] + [2] + [3])[2]", "3"),
        (
            "[1, 2] == [1.0, 2.0]",
            "faults: found no matching overload for '_==_' applied to '(list(int), list(double))'",
        ),
        ("[1, 2] == [1, 2] && [1] != [2] && [] == []", "true"),
        ("{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", "true"),
        ("{'a': [1]}['a'][0]", "1"),
        ("{1: 'x'}[1]", "'x'"),
        ("{'a': 1}.a", "1"),
        ("{'a': 1}.b", "error: no such key: b"),
        ("{'a': 1}['b']", "error: no such key: b"),
        ("{1: 2}[3]", "error: no such key: 3"),
        ("{'a': 1, 'a': 2}", "error: Failed with repeated key: a"),
        ("{1.5: 2}", "error: unsupported key type: double"),
        ("[1][3]", "error: index out of bounds: 3"),
        ("[1][-1]", "error: index out of bounds: -1"),
        ("1 in [1, 2] && !(3 in [1, 2]) && 'a' in {'a': 1} && !(1 in [])", "true"),
        ("dyn(1.0) in [1, 2] && dyn(1.5) in [dyn(1.5), 2]", "true"),
        ("true ? 1 : 2", "1"),
        ("false ? 1 : true ? 3 : 4", "3"),
        ("true || 1 / 0 > 0", "true"),
        ("1 / 0 > 0 || true", "true"),
        ("1 / 0 > 0 && false", "false"),
        ("1 / 0 > 0 && true", "error: division by zero"),
        ("false || 1 / 0 > 0", "error: division by zero"),
        ("1 > 0 ? true : 1 / 0 > 0", "true"),
        ("a && b", "faults: undeclared reference to 'a' (in container '')"),
        ("// comment\n 1 // more", "1"),
        ("null == null", "true"),
    ]);
}

#[test]
fn documents() {
    check_results(&[
        ("self.int + 1", "6"),
        ("self.double", "10.0"),
        ("self.double == 10.0", "true"),
        ("self.bytes", "b\"AB\""),
        ("string(self.time)", "'2011-08-18T19:03:37.01+01:00'"),
        ("self.time == self.time2", "true"),
        ("self.date == timestamp('1997-07-16T00:00:00Z')", "true"),
        ("self.duration == duration('1h2m') + duration('3s4ms')", "true"),
        ("self.ints[1] + self.ints[2]", "5"),
        ("self.ints[3]", "error: index out of bounds: 3"),
        ("self.absent", "error: no such key: absent"),
        ("self.absent.k == 'a'", "error: no such key: absent"),
        ("has(self.absent)", "false"),
        ("has(self.item.k) && !has(self.item.v2)", "true"),
        ("has(self.absent.k)", "error: no such key: absent"),
        ("has(self.absent) && has(self.absent.k)", "false"),
        ("has(self.labels.x) && !has(self.labels.z)", "true"),
        ("self.labels['y']", "'2'"),
        ("self.labels.z", "error: no such key: z"),
        ("self.nullable == null", "true"),
        ("self.never_null", "error: invalid data, got null for schema with nullable=false"),
        ("has(self.never_null)", "true"),
        ("type(self.either) == string ? self.either.endsWith('%') : self.either > 5", "true"),
        ("self.anything.deep[1]", "2.5"),
        ("type(self.anything.deep[0]) == int", "true"),
        ("self.anything.deep[3] == null", "true"),
        ("self.anything.other", "error: no such key: other"),
        ("self.set == self.set2 && self.set == ['c', 'b', 'a'] && ['c', 'b', 'a'] == self.set", "true"),
        ("self.set == ['a', 'b', 'b']", "false"),
        ("self.ints == [3, 2, 1]", "false"),
        ("self.set + ['c', 'd']", "['a', 'b', 'c', 'd']"),
        ("self.set + self.set2 == ['c', 'a', 'b']", "true"),
        ("(self.keyed + self.keyed2).map(x, x.v)", "['1', '3']"),
        ("self.keyed + self.keyed2 == self.keyed2", "true"),
        ("self.ints + self.ints2 == [1, 2, 3, 1, 2, 3]", "true"),
        ("self.item == self.items[0]", "true"),
        ("self.nothing", "faults: undefined field 'nothing'"),
    ]);
}

#[test]
fn macros() {
    check_results(&[
        ("self.ints.all(x, x > 0)", "true"),
        ("self.ints.all(x, x > 1)", "false"),
        ("self.ints.exists(x, x == 2)", "true"),
        ("self.ints.exists_one(x, x > 2) && !self.ints.existsOne(x, x > 1)", "true"),
        ("self.ints.map(x, x * 2)", "[2, 4, 6]"),
        ("self.ints.map(x, x > 1, x * 2)", "[4, 6]"),
        ("self.ints.filter(x, x > 1)", "[2, 3]"),
        ("self.labels.filter(k, k == 'x')", "['x']"),
        ("self.labels.map(k, self.labels[k])", "['1', '2']"),
        ("self.ints.map(x, self.strings.map(y, y + string(x)))", "[['a1', 'b1'], ['a2', 'b2'], ['a3', 'b3']]"),
        ("self.ints.all(x, self.ints.exists(y, x == y))", "true"),
        ("[0, 1].exists(x, 1 / x == 1)", "true"),
        ("[0, 1].all(x, 1 / x == 2)", "false"),
        ("[0, 1].all(x, 1 / x == 1)", "error: division by zero"),
        ("[0, 1].map(x, 1 / x)", "error: division by zero"),
        ("[1, 0].exists_one(x, 1 / x == 1)", "error: division by zero"),
        ("[].all(x, false) && ![].exists(x, true)", "true"),
        ("dyn(1).all(x, true)", "error: got 'int', expected iterable type"),
        ("self.ints.all(i, x, i + 1 == x)", "true"),
        ("self.counts.exists(k, v, k == 'd' && v == 2)", "true"),
        ("self.counts.existsOne(k, v, v > 0)", "false"),
        ("self.ints.transformList(i, x, i * x)", "[0, 2, 6]"),
        ("self.ints.transformList(i, x, i > 0, i * x)", "[2, 6]"),
        ("self.counts.transformList(k, v, k + string(v))", "['b1', 'd2']"),
        ("self.counts.transformMap(k, v, v + 1)", "{'b': 2, 'd': 3}"),
        ("self.counts.transformMap(k, v, v > 1, v)", "{'d': 2}"),
        ("self.strings.transformMap(i, v, v)", "{0: 'a', 1: 'b'}"),
        ("self.strings.transformMapEntry(i, v, {v: i})", "{'a': 0, 'b': 1}"),
        ("['a', 'a'].transformMapEntry(i, v, {v: i})", "error: insert failed: key 'a' already exists"),
        ("self.ints.map(int, int)", "[1, 2, 3]"),
    ]);
}

#[test]
fn optionals() {
    check_results(&[
        ("optional.of(1)", "optional 1"),
        ("optional.none().hasValue()", "false"),
        ("optional.ofNonZeroValue('')", "none"),
        ("optional.ofNonZeroValue(1).value()", "1"),
        ("optional.none().value()", "error: optional.none() dereference"),
        ("self.?absent", "none"),
        ("self.?absent.k", "none"),
        ("self.?item.k", "optional 'a1'"),
        ("self.?item.?v2.orValue('none')", "'none'"),
        ("self.?absent.or(optional.of(self.item)).value().k", "'a1'"),
        ("self.ints[?5].orValue(7)", "7"),
        ("self.ints[?0]", "optional 1"),
        ("self.labels[?'x']", "optional '1'"),
        ("self.?labels['z']", "none"),
        ("optional.of(1).orValue(1 / 0)", "1"),
        ("self.ints[?0].optMap(x, x + 1)", "optional 2"),
        ("self.ints[?9].optMap(x, x + 1)", "none"),
        ("self.ints[?0].optFlatMap(x, self.ints[?x])", "optional 2"),
        ("[?self.?absent, ?optional.of(self.item)].size()", "1"),
        ("{?'a': self.ints[?0], ?'b': self.ints[?9]}", "{'a': 1}"),
        ("has(self.?absent.k)", "false"),
        ("optional.of(1) == optional.of(1) && optional.none() != optional.of(1)", "true"),
        ("self.int.optMap(x, x)", "faults: found no matching overload for 'hasValue' applied to 'int.()'"),
    ]);
}

#[test]
fn functions_of_the_standard_library() {
    check_results(&[
        ("size('👑é') + size([1]) + size({}) + size(b'ab') + 'ab'.size()", "7"),
        ("'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo')", "true"),
        (r"'a1'.matches('^[a-z]\\d$') && matches('x', '.')", "true"),
        (r"'é'.matches('^\\w$')", "false"),
        (r"'[a]'.matches('^[[a\\]&&]+$')", "true"),
        ("'a'.matches('[[:alpha:]]')", "true"),
        ("'a'.matches(self.string + '(')", "error: error parsing regexp: missing closing ): `Rook takes 👑(`"),
        ("int('12') + int(3.9) + int(4u) + int(timestamp('1970-01-01T00:00:05Z'))", "24"),
        ("int(self.string)", "error: type conversion error from 'string' to 'int'"),
        ("int('x')", "faults: type conversion error from 'string' to 'int'"),
        ("int(self.double * 1e18)", "error: integer overflow"),
        ("uint(-self.int)", "error: unsigned integer overflow"),
        ("double('1.5') + double(1)", "2.5"),
        ("string(1) + string(1.5) + string(true) + string(b'x') + string(2u)", "'11.5truex2'"),
        ("string(1e6) + ' ' + string(123456.0) + ' ' + string(0.00001)", "'1e+06 123456 1e-05'"),
        ("string(self.bytes + b'\\xff')", "error: invalid UTF-8 in bytes, cannot convert to string"),
        ("bytes('é').size()", "2"),
        ("bool('true') && !bool('0')", "true"),
        ("type(1) == int && type('') == string && type(type(1)) == type && type(null) == null_type", "true"),
        ("type([]) == list && type({}) == map && type(1u) != int", "true"),
        ("type(duration('1s')) == google.protobuf.Duration", "true"),
        ("string(duration('1h30m') - duration('500ms'))", "'5399.5s'"),
        ("duration('90m').getHours() + duration('90m').getMinutes()", "91"),
        ("duration('1.5s').getMilliseconds()", "1500"),
        ("duration('1x')", "faults: invalid duration argument"),
        ("timestamp('x')", "faults: invalid timestamp argument"),
        ("'x'.matches('(')", "faults: invalid matches argument"),
        ("self.time.getHours()", "18"),
        ("self.time.getHours('+05:30')", "23"),
        ("self.time.getHours('-01:00')", "17"),
        ("self.time.getDate('06:00')", "19"),
        ("self.time.getHours('Mars/Base')", "error: unknown time zone Mars/Base"),
        ("self.time.getFullYear() + self.time.getMonth() + self.time.getDayOfMonth()", "2035"),
        ("self.time.getDayOfWeek() * 1000 + self.time.getDayOfYear()", "4229"),
        ("self.time.getMilliseconds()", "10"),
        ("string(timestamp('2020-01-01T00:00:00Z') + duration('36h'))", "'2020-01-02T12:00:00Z'"),
        ("timestamp('2020-01-02T00:00:00Z') - timestamp('2020-01-01T00:00:00Z') == duration('24h')", "true"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "error: timestamp overflow"),
        ("timestamp('2020-01-01T00:00:00Z') < self.time", "false"),
        ("self.string.charAt(11) + 'abc'.charAt(3)", "'👑'"),
        ("'abc'.charAt(4)", "error: index out of range: 4"),
        ("'hello'.indexOf('l') * 100 + 'hello'.indexOf('l', 3) * 10 + 'hello'.lastIndexOf('l')", "233"),
        ("'hello'.lastIndexOf('l', 2)", "2"),
        ("'hello'.indexOf('x')", "-1"),
        ("'hello'.indexOf('l', 9)", "error: index out of range: 9"),
        ("['a', 'b'].join() + ['a', 'b'].join('-')", "'aba-b'"),
        ("'AbÉ'.lowerAscii() + 'aé'.upperAscii()", "'abÉAé'"),
        ("'a-b-c'.replace('-', '+') + 'a-b-c'.replace('-', '+', 1)", "'a+b+ca+b-c'"),
        ("'ab'.replace('', '.')", "'.a.b.'"),
        ("'a,b,c'.split(',') + 'a,b,c'.split(',', 2)", "['a', 'b', 'c', 'a', 'b,c']"),
        ("'abc'.split('') + 'abc'.split('', 2) + 'a'.split(',', 0)", "['a', 'b', 'c', 'a', 'bc']"),
        ("'tacocat'.substring(4) + 'tacocat'.substring(0, 4)", "'cattaco'"),
        ("'abc'.substring(2, 1)", "error: invalid substring range. start: 2, end: 1"),
        ("'abc'.substring(1, 5)", "error: index out of range: 5"),
        ("'  a b \\n'.trim()", "'a b'"),
        ("strings.quote('a\"b\\n')", r#"'"a\"b\n"'"#),
        ("'%s is %d, %.2f %x %b %%'.format([dyn('a'), 5, 1.5, 255, 5])", "'a is 5, 1.50 ff 101 %'"),
        ("'%s'.format([[dyn(1), {'a': true}]])", "'[1, {a: true}]'"),
        (
            "'%d'.format(['a'])",
            "error: error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ("'%s'.format([])", "error: index 0 out of range"),
        ("sets.contains([1, 2], [2]) && !sets.contains([1], [2])", "true"),
        ("sets.equivalent([1, 1], [1]) && sets.intersects([1, 2], [2, 3]) && !sets.intersects([], [1])", "true"),
        ("'abc'.reverse()", "faults: undeclared reference to 'reverse' (in container '')"),
    ]);
}

#[test]
fn complaints_read_as_those_of_cel_go() {
    let environment = Environment::kubernetes().variable("self", schema());
    for (source, expected) in [
        ("self.x", "ERROR: <input>:1:5: undefined field 'x'\n | self.x\n | ....^"),
        ("foo", "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^"),
        (
            "1 +\n  'a'",
            "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 +\n | ..^",
        ),
        ("'é' +\n !1", "ERROR: <input>:2:2: found no matching overload for '!_' applied to '(int)'\n |  !1\n | .^"),
        (
            "'é' + 1",
            "ERROR: <input>:1:5: found no matching overload for '_+_' applied to '(string, int)'\n | 'é' + 1\n | .．..^",
        ),
        (
            "self.string.startsWith(1)",
            "ERROR: <input>:1:23: found no matching overload for 'startsWith' applied to 'string.(int)'\n | \
             self.string.startsWith(1)\n | ......................^",
        ),
        ("[1, 'a']", "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^"),
        (
            "{'a': 1, 'b': ''}",
            "ERROR: <input>:1:15: expected type 'int' but found 'string'\n | {'a': 1, 'b': ''}\n | ..............^",
        ),
        (
            "1.5 + self.int",
            "ERROR: <input>:1:5: found no matching overload for '_+_' applied to '(double, int)'\n | 1.5 + self.int\n | ....^",
        ),
        (
            "self.int == null",
            "ERROR: <input>:1:10: found no matching overload for '_==_' applied to '(int, null)'\n | self.int == null\n | .........^",
        ),
        (
            "true && 1",
            "ERROR: <input>:1:6: found no matching overload for '_&&_' applied to '(bool, int)'\n | true && 1\n | .....^",
        ),
        (
            "true ? 1 : ''",
            "ERROR: <input>:1:6: found no matching overload for '_?_:_' applied to '(bool, int, string)'\n | true ? 1 : ''\n | .....^",
        ),
        (
            "self.int.all(x, x)",
            "ERROR: <input>:1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or \
             dynamic)\n | self.int.all(x, x)\n | ....^",
        ),
        ("self.int.k", "ERROR: <input>:1:9: type 'int' does not support field selection\n | self.int.k\n | ........^"),
        (
            "self.ints['a']",
            "ERROR: <input>:1:10: found no matching overload for '_[_]' applied to '(list(int), string)'\n | self.ints['a']\n | .........^",
        ),
        ("nope(1)", "ERROR: <input>:1:5: undeclared reference to 'nope' (in container '')\n | nope(1)\n | ....^"),
        ("Foo{a: 1}", "ERROR: <input>:1:4: undeclared reference to 'Foo' (in container '')\n | Foo{a: 1}\n | ...^"),
        ("has(self)", "ERROR: <input>:1:5: invalid argument to has() macro\n | has(self)\n | ....^"),
        (
            "self.ints.all(1, true)",
            "ERROR: <input>:1:15: argument must be a simple name\n | self.ints.all(1, true)\n | ..............^",
        ),
        (
            "1 +",
            "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', \
             'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | 1 +\n | ...^",
        ),
        ("1 1", "ERROR: <input>:1:3: Syntax error: extraneous input '1' expecting <EOF>\n | 1 1\n | ..^"),
        ("(1", "ERROR: <input>:1:3: Syntax error: mismatched input '<EOF>' expecting ')'\n | (1\n | ..^"),
        ("for", "ERROR: <input>:1:1: reserved identifier: for\n | for\n | ^"),
        ("1 @ 2", "ERROR: <input>:1:3: Syntax error: token recognition error at: '@'\n | 1 @ 2\n | ..^"),
        ("'abc", "ERROR: <input>:1:1: Syntax error: token recognition error at: ''abc'\n | 'abc\n | ^"),
        ("self.`a`", "ERROR: <input>:1:6: unsupported syntax: '`'\n | self.`a`\n | .....^"),
    ] {
        let faults = compile(source, &environment).expect_err(source);
        assert_eq!(faults[0].to_string(), expected, "{source}");
    }
    let all = compile("foo + bar", &environment).unwrap_err();
    assert_eq!(all.iter().map(|fault| fault.column).collect::<Vec<_>>(), [1, 7], "all that is wrong at once");
}

#[test]
fn types_and_uses() {
    let environment = Environment::kubernetes().variable("self", schema()).variable("oldSelf", schema());
    for (source, ty) in [
        ("self.int", "int"),
        ("[1, 2].map(x, string(x))", "list(string)"),
        ("{'a': [1.5]}", "map(string, list(double))"),
        ("[]", "list(dyn)"),
        ("self.ints[?0]", "optional_type(int)"),
        ("self.?item.k", "optional_type(string)"),
        ("self.anything.deep", "dyn"),
        ("self.bool ? self.either : 1", "dyn"),
        ("type(1)", "type(int)"),
        ("dyn(1) + dyn(2)", "dyn"),
        ("size(dyn(1))", "int"),
        ("optional.none().orValue(1)", "int"),
        ("self.counts.transformMap(k, v, [v])", "map(string, list(int))"),
        ("self.time - self.time", "duration"),
    ] {
        assert_eq!(compile(source, &environment).unwrap().result().to_string(), ty, "{source}");
    }
    let program = compile("self.ints.all(self, self > 0) && oldSelf.bool", &environment).unwrap();
    assert!(program.uses("oldSelf") && program.uses("self"));
    let program = compile("[1].all(oldSelf, oldSelf > 0)", &environment).unwrap();
    assert!(!program.uses("oldSelf"), "a variable of a macro hides it");
}

/// Costs that Kubernetes promises to keep, for expressions of these shapes.
#[test]
fn evaluation_costs_what_it_costs_in_kubernetes() {
    for (source, cost) in [
        ("self.int == self.int2", 5),
        ("type(self.int) == int", 4),
        ("double(5) < 10.0", 1),
        ("double(self.int) < self.double", 6),
        ("self.string.startsWith('Rook')", 4),
        ("!self.string.startsWith('knight')", 5),
        ("self.string.matches('^[^0-9]*$')", 8),
        ("size(self.string) == 12", 4),
        ("self.string.charAt(3) == 'k'", 4),
        ("self.string.indexOf('o') == 1", 4),
        ("self.string.replace(' ', 'x') == 'Rookxtakesx👑'", 7),
        ("self.string.split(' ') == ['Rook', 'takes', '👑']", 6),
        ("self.string.substring(5) == 'takes 👑'", 5),
        ("self.string.upperAscii() == 'ROOK TAKES 👑'", 6),
        ("self.bytes == b'AB'", 3),
        ("self.duration == duration('1h2m') + duration('3s4ms')", 4),
        ("self.time.getDate('01:00') == 18", 4),
        ("self.string in ['Pending', 'Available']", 2),
        ("string(self.time) == self.string", 7),
        ("1 in self.ints", 5),
        ("self.ints2[0] in self.ints", 8),
        ("!(0 in self.ints)", 6),
        ("self.ints + self.ints2 == [1, 2, 3, 1, 2, 3]", 6),
        ("self.ints + [4, 5] == [1, 2, 3, 4, 5]", 4),
        ("'k1' in self.labels", 3),
        ("self.items[0] == [self.items[0], self.items[1]][0]", 22),
        ("has(self.item.k)", 2),
        ("!(has(self.absent) && has(self.absent.k))", 2),
        ("!has(self.labels.a)", 3),
        ("self.counts.all(k, self.counts[k] > 0)", 17),
        ("self.counts.exists_one(k, self.counts[k] == 2)", 14),
        ("!self.counts.exists_one(k, self.counts[k] > 0)", 17),
        ("size(self.counts.filter(k, self.counts[k] > 1)) == 1", 26),
        ("has(self.items[0].v)", 3),
        ("self.items.all(m, m.k.startsWith('a'))", 21),
        ("self.items.all(m, !has(m.v2) || m.v2 == 'z')", 21),
        ("self.items.exists(m, m.k.endsWith('1'))", 13),
        ("self.items.exists_one(m, m.k == 'a3')", 15),
        ("!self.items.all(m, m.k.endsWith('1'))", 18),
        ("!self.items.exists(m, m.v == 'x')", 25),
        ("size(self.items.filter(m, m.k == 'a1')) == 1", 27),
        ("self.items.exists(m, m.k == 'a1' && m.v == 'b1')", 16),
        ("self.items.map(m, m.v).exists(v, v == 'b1')", 55),
        ("self.items.exists(m, has(m.v2) && m.v2 == 'z')", 21),
        ("!self.items.all(m, has(m.v2) && m.v2 != 'z')", 10),
    ] {
        let (result, actual) = evaluate(source);
        assert!(!result.starts_with("error") && !result.starts_with("faults"), "{source}: {result}");
        assert_eq!(actual, cost, "{source} = {result}");
    }
}

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
    // Lists that contain each other twice would take forever to compare.
    let twice: String = (0..40).map(|level| format!(".map(x{level}, [x{level}, x{level}])")).collect();
    let source = format!("dyn([0]{twice}) == dyn([0]{twice})");
    let program = compile(&source, &Environment::kubernetes()).unwrap();
    assert_eq!(program.eval(&[], &mut Budget::new(100_000)).unwrap_err(), EvalError::Cost);
    // And so would lists that double their length.
    let doubled: String = (0..100).map(|level| format!(".map(x{level}, x{level} + x{level})")).collect();
    let program = compile(&format!("[[0]]{doubled}.size()"), &Environment::kubernetes()).unwrap();
    assert_eq!(program.eval(&[], &mut Budget::new(100_000)).unwrap_err(), EvalError::Cost);
}

/// The deepest trees that the parser lets through, from compiling to dropping, on a small stack.
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

/// Whatever strangers send, nothing panics.
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

#[test]
fn estimates() {
    let text = |max: u64| Type::String.sized(max);
    let item = Type::object("item", [("name", text(10)), ("count", Type::Int)]);
    let schema = Type::object(
        "self",
        [
            ("int", Type::Int),
            ("name", text(20)),
            ("long", text(1000)),
            ("items", Type::list(item).sized(50)),
            ("names", Type::list(text(30)).sized(100)),
            ("labels", Type::map(text(63), text(63)).sized(20)),
            ("unlimited", Type::list(Type::Int)),
        ],
    );
    let environment = Environment::kubernetes().variable("self", schema);
    let mut wrong = Vec::new();
    for (source, min, max) in [
        ("self.int > 5", 3, 3),
        ("self.int == 5", 2, 2),
        ("self.name == 'x'", 3, 3),
        ("self.name == self.long", 5, 6),
        ("self.long.matches('^[a-z]*$')", 4, 204),
        ("self.long.contains(self.name)", 4, 204),
        ("self.long.startsWith('abc')", 3, 3),
        ("size(self.items) < 5", 4, 4),
        ("self.items.all(i, i.count > 0)", 3, 303),
        ("self.items.exists(i, i.name == 'x')", 3, 353),
        ("self.names.map(n, n + 'x').size() > 0", 15, 1715),
        ("self.labels.all(k, self.labels[k].size() < 10)", 3, 183),
        ("'x' in self.names", 2, 102),
        ("has(self.name)", 1, 1),
        ("[1, 2, 3].all(x, x > 0)", 20, 26),
        ("self.int > 0 && self.int < 5", 3, 6),
        ("self.int > 0 ? self.name == 'a' : true", 3, 6),
        ("self.unlimited.all(x, x > 0)", 3, u64::MAX),
        ("self.name.split(',').size() > 0", 4, 8),
        ("sets.contains(self.names, ['a'])", 13, 113),
    ] {
        let estimate =
            compile(source, &environment).unwrap_or_else(|faults| panic!("{source}: {}", faults[0])).estimate();
        if (estimate.min, estimate.max) != (min, max) {
            wrong.push(format!("{source}: {estimate:?}, not {min} to {max}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `cargo test --release -- --ignored --nocapture speed`
#[test]
#[ignore = "measures, checks nothing"]
#[allow(clippy::disallowed_methods)]
fn speed() {
    let (schema, document) = (schema(), document());
    let environment = Environment::kubernetes().variable("self", schema.clone());
    for source in [
        "self.int <= self.int2",
        "self.string.startsWith('Rook')",
        "self.string.matches('^[^0-9]*$')",
        "self.string in ['Pending', 'Available', 'Bound']",
        "self.items.all(m, !has(m.v2) || m.v2 == 'z')",
    ] {
        let program = compile(source, &environment).unwrap();
        let rounds = 100_000u32;
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            let value = Value::json(&document, &schema).unwrap();
            std::hint::black_box(program.eval(&[value], &mut Budget::new(1_000_000))).unwrap();
        }
        println!("{:>6} ns  {source}", start.elapsed().as_nanos() / u128::from(rounds));
        let start = std::time::Instant::now();
        for _ in 0..1000 {
            std::hint::black_box(compile(source, &environment)).unwrap();
        }
        println!("{:>6} ns  to compile", start.elapsed().as_nanos() / 1000);
    }
}
