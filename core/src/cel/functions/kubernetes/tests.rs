//! Results and costs of expressions that use Kubernetes' libraries.

use crate::cel::{Budget, Environment, Value, compile};

/// The result of an expression, in the form of the tables below, and its cost.
fn run(source: &str) -> (String, u64) {
    let program = match compile(source, &Environment::kubernetes()) {
        Ok(program) => program,
        Err(faults) => return (format!("{}", faults[0]), 0),
    };
    let mut budget = Budget::new(1_000_000);
    let found = match program.eval(&[], &mut budget) {
        Ok(Value::Bool(value)) => value.to_string(),
        Ok(Value::Int(value)) => value.to_string(),
        Ok(Value::Double(value)) => value.to_string(),
        Ok(Value::String(text)) => text.to_string(),
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error: {error}"),
    };
    (found, 1_000_000 - budget.left)
}

#[test]
fn values() {
    for (source, expected) in [
        ("[1, 2, 2, 3].isSorted()", "true"),
        ("['b', 'a'].isSorted()", "false"),
        ("[].isSorted()", "true"),
        ("[1, 3].sum()", "4"),
        ("[1.5, 2.0].sum()", "3.5"),
        ("[duration('1m'), duration('1s')].sum() == duration('61s')", "true"),
        ("[9223372036854775807, 1].sum()", "error: integer overflow"),
        ("[].sum()", "0"),
        ("[3, 1, 2].min()", "1"),
        ("['a', 'c', 'b'].max()", "c"),
        ("[].min()", "error: min called on empty list"),
        ("[1, 2, 2, 3].indexOf(2)", "1"),
        ("[1, 2, 2, 3].lastIndexOf(2)", "2"),
        ("['a'].indexOf('b')", "-1"),
        ("'abc 123'.find('[0-9]+')", "123"),
        ("'abc 123'.find('xyz')", ""),
        ("'123 abc 456'.findAll('[0-9]+') == ['123', '456']", "true"),
        ("'123 abc 456'.findAll('[0-9]+', 1) == ['123']", "true"),
        ("'a'.findAll('x').size()", "0"),
        ("isURL('https://user:pass@example.com:80/path?query=val#fragment')", "true"),
        ("isURL('../relative-path')", "false"),
        ("url('https://[::1]:80/').getHost()", "[::1]:80"),
        ("url('https://[::1]:80/').getHostname() + url('https://[::1]:80/').getPort()", "::180"),
        ("url('https://h/?a=1&b=2&a=3').getQuery()['a'] == ['1', '3']", "true"),
        ("url('https://h/x') == url('https://h/x')", "true"),
        (
            "url('../x')",
            "error: URL parse error during conversion from string: parse \"../x\": invalid URI for request",
        ),
        ("quantity('200M').compareTo(quantity('0.2G'))", "0"),
        ("quantity('50Mi').isGreaterThan(quantity('50M'))", "true"),
        ("quantity('50k').add(20).sub(quantity('100k')).sub(-50000) == quantity('20')", "true"),
        ("sign(quantity('-1'))", "-1"),
        ("quantity('50k').sub(20000).asApproximateFloat()", "30000"),
        ("quantity('1.5').asInteger()", "error: cannot convert value to integer"),
        (
            "quantity('10Mo')",
            "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("quantity('10K')", "error: unable to parse quantity's suffix"),
        ("isQuantity('1.3Gi') && !isQuantity('1,3G')", "true"),
        ("ip('2001:DB8::1') == ip('2001:db8::1')", "true"),
        ("ip('127.0.0.1').family()", "4"),
        ("string(ip('2001:DB8::0:1'))", "2001:db8::1"),
        ("ip.isCanonical('2001:DB8::1')", "false"),
        ("isIP('::ffff:1.2.3.4') || isIP('1.2.3.04')", "false"),
        ("cidr('192.168.0.0/24').containsIP('192.168.0.1')", "true"),
        ("cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))", "false"),
        ("cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24')", "true"),
        ("string(cidr('192.168.0.1/24').masked())", "192.168.0.0/24"),
        ("cidr('::1/128').prefixLength()", "128"),
        ("cidr('10.0.0.1/8').ip() == ip('10.0.0.1')", "true"),
        ("type(ip('::1')) == net.IP && type(cidr('::/0')) == net.CIDR", "true"),
        ("format.dns1123Label().validate('a-b').hasValue()", "false"),
        ("format.uuid().validate('x').value()[0]", "does not match the UUID format"),
        ("format.named('dns1035Label').value() == format.dns1035Label()", "true"),
        ("format.named('other').hasValue()", "false"),
        ("semver('1.2.3').isLessThan(semver('1.10.0'))", "true"),
        ("semver('v01.2', true).minor()", "2"),
        ("isSemver('v1.0') || !isSemver('v1.0', true)", "false"),
        ("semver('200K')", "error: No Major.Minor.Patch elements found"),
    ] {
        assert_eq!(run(source).0, expected, "{source}");
    }
}

/// Checks the estimated range of costs, and the actual cost, of each expression. Lists of literals cost nothing,
/// because they are computed at compile time.
#[test]
fn costs() {
    for (source, (min, max), spent) in [
        ("[1, 2, 3, 4, 5].sum()", (15, 15), 5),
        ("[2, 1].max()", (12, 12), 2),
        ("'01234567890123456789012345678901234567890123456789'.indexOf('123')", (5, 5), 5),
        ("url('https:://kubernetes.io/').getScheme()", (4, 4), 4),
        ("ip('192.168.0.1')", (2, 2), 2),
        ("ip('2001:db8:3333:4444:5555:6666:7777:8888').isGlobalUnicast()", (5, 5), 5),
        ("ip.isCanonical('2001:db8:3333:4444:5555:6666:7777:8888')", (8, 8), 8),
        ("cidr('192.168.0.0/16').prefixLength()", (3, 3), 3),
        ("cidr('192.168.0.0/16').containsCIDR(cidr('192.0.0.0/30'))", (7, 11), 7),
        ("cidr('192.168.0.0/16').containsCIDR('192.0.0.0/30')", (7, 11), 7),
        ("cidr('192.168.0.0/16').containsIP(ip('192.0.0.1'))", (4, 7), 4),
        ("cidr('192.168.0.0/16').containsIP('192.169.0.1')", (5, 8), 5),
        ("cidr('2001:db8::/32').containsIP('2001:db8:3333:4444:5555:6666:7777:8888')", (7, 10), 7),
        ("'abc 123 def 123'.find('123')", (2, 2), 2),
        ("'abc 123 def 123'.findAll('123', 1)", (2, 2), 2),
        ("quantity('12Mi')", (1, 1), 1),
        ("quantity('200M') == quantity('200M')", (3, 3), 3),
        ("quantity('50k').add(20).sub(quantity('100k')).asInteger() > 0", (6, 6), 6),
        ("sign(quantity('50k'))", (2, 2), 2),
    ] {
        let program = compile(source, &Environment::kubernetes()).expect(source);
        let estimate = program.estimate();
        let found = ((estimate.min, estimate.max), run(source).1);
        assert_eq!(found, ((min, max), spent), "{source}");
    }
    // The lengths of the texts in a computed list are not known before evaluation, so the estimate has no upper bound.
    const TEXTS: &str = "['012345678901', '012345678901', '012345678901', '012345678901', '012345678901']";
    for call in ["isSorted()", "indexOf('x')"] {
        let source = format!("{TEXTS}.{call}");
        assert!(compile(&source, &Environment::kubernetes()).expect("an expression").estimate().max > 1 << 60);
        assert_eq!(run(&source).1, 5);
    }
}
