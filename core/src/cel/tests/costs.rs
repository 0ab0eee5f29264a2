//! Costs of expressions, and a measurement of speed.

use super::*;

/// The costs that Kubernetes computes for these expressions. The Kubernetes project promises not to change them.
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

/// Measures the speed of expressions: `cargo test --release -- --ignored --nocapture speed`.
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
