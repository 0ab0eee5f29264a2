//! Tests of compile errors and of inferred types.

use super::*;

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
        ("true && 1", "ERROR: <input>:1:9: expected type 'bool' but found 'int'\n | true && 1\n | ........^"),
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
        (
            "",
            "ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', \
             'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
        ),
        ("1 1", "ERROR: <input>:1:3: Syntax error: extraneous input '1' expecting <EOF>\n | 1 1\n | ..^"),
        ("(1", "ERROR: <input>:1:3: Syntax error: missing ')' at '<EOF>'\n | (1\n | ..^"),
        (
            "'%d'.format(['a'])",
            "ERROR: <input>:1:14: error during formatting: decimal clause can only be used on integers, was given string\n | '%d'.format(['a'])\n | .............^",
        ),
        (
            "'%s'.format([1, 2])",
            "ERROR: <input>:1:12: too many arguments supplied to string.format (expected 1, got 2)\n | '%s'.format([1, 2])\n | ...........^",
        ),
        ("int('a')", "type conversion error from 'string' to 'int'"),
        ("for", "ERROR: <input>:1:1: reserved identifier: for\n | for\n | ^"),
        ("1 @ 2", "ERROR: <input>:1:3: Syntax error: token recognition error at: '@'\n | 1 @ 2\n | ..^"),
        ("'abc", "ERROR: <input>:1:1: Syntax error: token recognition error at: ''abc'\n | 'abc\n | ^"),
        ("self.`a`", "ERROR: <input>:1:6: unsupported syntax: '`'\n | self.`a`\n | .....^"),
    ] {
        let faults = compile(source, &environment).expect_err(source);
        assert_eq!(faults[0].to_string(), expected, "{source}");
    }
    let read_on =
        |source: &str| compile(source, &environment).unwrap_err().iter().map(|fault| fault.column).collect::<Vec<_>>();
    assert_eq!(read_on("self.int <> 1 &"), [11, 15], "a word too many, and half an operator");
    assert_eq!(read_on("'\\xZZ' == 'a"), [1, 6], "a string that is none, and the one that begins behind it");
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
