//! Tests the validation rules of custom resources. Definitions with rules, and objects of these definitions, must get
//! the same answers as from Kubernetes, whose answers are recorded in `tests/data/cel.jsonl.gz`.
//!
//! A case has a schema for `spec`, one or more rules for `spec` (with `at: root` for the whole object), and objects:
//! new objects, and updates of old objects. With `ratchet` the old objects were created before the rules. Long values
//! have a short form: `$repeat` for a list, `$text` for a text, `$keys` for a map.
//!
//! If the environment has `SHOW_DIFFERENCES=file`, the cases that differ are written to the file.

#[path = "../../tests/src/facts.rs"]
mod facts;
#[path = "custom_resources/world.rs"]
#[allow(dead_code)]
mod world;

use holdfast_core::refusal::Refusal;
use holdfast_value::{Map, Value, json};
use std::fmt::Write as _;
use world::{DEFINITIONS, World};

/// The number of cases in which both servers accept or refuse the same. It must not decrease.
const AGREE: usize = 1337;
/// The number of cases in which the messages are the same as well. It must not decrease.
const AGREE_IN_WORDS: usize = 1335;

#[test]
#[expect(clippy::disallowed_methods, reason = "who runs the test asks to see")]
fn rules_judge_as_recorded() {
    let cases = facts::lines("cel");
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let base = World::new();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let parts = cases.chunks(cases.len().div_ceil(threads)).map(|part| {
            let base = base.clone();
            let judge_all = move || part.iter().map(|case| Outcome::of(case, &base)).collect::<Vec<_>>();
            // Deeply nested rules are parsed by recursion, which needs a large stack.
            std::thread::Builder::new().stack_size(8 << 20).spawn_scoped(scope, judge_all).expect("a thread")
        });
        let parts: Vec<_> = parts.collect();
        parts.into_iter().flat_map(|part| part.join().expect("no panic")).collect()
    });
    let agree = outcomes.iter().filter(|outcome| outcome.verdict).count();
    let in_words = outcomes.iter().filter(|outcome| outcome.words).count();
    let told = format!("{} cases, {agree} agree, {in_words} in every word", cases.len());
    println!("{told}");
    if let Ok(file) = std::env::var("SHOW_DIFFERENCES") {
        let differences: String = outcomes.iter().map(|outcome| outcome.difference.as_str()).collect();
        std::fs::write(file, differences).expect("a file");
    }
    assert!(agree >= AGREE && in_words >= AGREE_IN_WORDS, "{told}: fewer than {AGREE} and {AGREE_IN_WORDS}");
}

struct Outcome {
    verdict: bool,
    words: bool,
    difference: String,
}

impl Outcome {
    fn of(case: &Value, base: &World) -> Outcome {
        let (definition, objects) = judge(case, base);
        let peer = &case["peer"];
        let mut outcome = Outcome { verdict: true, words: true, difference: String::new() };
        outcome.compare("definition", &peer["crd"], &definition);
        let expected = peer["objects"].as_array().expect("a list");
        for (at, expected) in expected.iter().enumerate() {
            let nothing = json!({"accepted": null});
            outcome.compare(&case["objects"][at].to_string(), expected, objects.get(at).unwrap_or(&nothing));
        }
        // If the messages of Kubernetes differ from run to run, only the verdict (accepted or refused) is compared.
        outcome.words = outcome.verdict && (outcome.words || case["unstable"] == true);
        if !outcome.words {
            let short = |value: &Value| value.to_string().chars().take(600).collect::<String>();
            let (id, rule, schema) = (&case["id"], short(&case["rule"]), short(&case["schema"]));
            let kind = if outcome.verdict { "WORDS" } else { "VERDICT" };
            let details = std::mem::take(&mut outcome.difference);
            outcome.difference = format!("{kind} {id}\n  rule   {rule}\n  schema {schema}\n{details}\n");
        } else {
            outcome.difference.clear();
        }
        outcome
    }

    fn compare(&mut self, what: &str, expected: &Value, found: &Value) {
        let is = |field: &str| expected[field] == found[field];
        self.verdict &= is("accepted") && is("at");
        self.words &= is("causes") && is("code") && is("warnings");
        if ["accepted", "at", "causes", "code", "warnings"].into_iter().any(|field| !is(field)) {
            let what: String = what.chars().take(200).collect();
            let _ = writeln!(self.difference, "  {what}\n    Kubernetes {expected}\n    here       {found}");
        }
    }
}

/// This server's answers to the definition of a case and to each of its objects.
fn judge(case: &Value, base: &World) -> (Value, Vec<Value>) {
    let verdict_of = |world: &mut World, with_rules: bool| {
        let made = world.create(DEFINITIONS, &definition(case, with_rules));
        verdict(made, false, &world.warnings)
    };
    let mut world = base.clone();
    let said = verdict_of(&mut world, true);
    let objects = case["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    if said["accepted"] != true || objects.is_empty() {
        return (said, Vec::new());
    }
    let is_ratchet = case["ratchet"] == true;
    if is_ratchet {
        world = base.clone();
        verdict_of(&mut world, false);
    }
    world.settle();
    let path = format!("/apis/{}/v1/cases", group(case));
    let refused = |(at, pair): (usize, &Value)| {
        let old = pair.get("old")?;
        let made = world.create(&path, &object(case, old, at));
        made.is_err().then(|| verdict(made, true, &[]))
    };
    let olds: Vec<Option<Value>> = objects.iter().enumerate().map(refused).collect();
    if is_ratchet {
        let place = format!("{DEFINITIONS}/cases.{}", group(case));
        let mut now = world.get(&place).expect("the definition");
        now["spec"] = definition(case, true)["spec"].clone();
        world.update(&place, &now).expect("rules come");
        world.settle();
    }
    let judged = objects.iter().zip(olds).enumerate().map(|(at, (pair, refused))| {
        refused.unwrap_or_else(|| {
            let mut new = object(case, &pair["new"], at);
            let mut world = world.clone();
            let made = match pair.get("old") {
                Some(_) => {
                    let place = format!("{path}/o{at}");
                    let old = world.get(&place).expect("the old object");
                    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
                    world.update(&place, &new)
                }
                None => world.create(&path, &new),
            };
            verdict(made, false, &world.warnings)
        })
    });
    let judged = judged.collect();
    (said, judged)
}

fn group(case: &Value) -> String {
    format!("{}.cel.example", case["id"].as_str().expect("an id").to_lowercase())
}

fn definition(case: &Value, with_rules: bool) -> Value {
    let mut root = json!({"type": "object", "properties": {"spec": case["schema"]}});
    let rules = match &case["rule"] {
        Value::Null => Vec::new(),
        Value::Array(rules) => rules.clone(),
        rule => vec![rule.clone()],
    };
    if !rules.is_empty() {
        let to = if case["at"] == "root" { &mut root } else { &mut root["properties"]["spec"] };
        let mut all = to["x-kubernetes-validations"].as_array().cloned().unwrap_or_default();
        all.extend(rules);
        to["x-kubernetes-validations"] = Value::Array(all);
    }
    if !with_rules {
        root = without_rules(&root);
    }
    if case["ratchet"] == true {
        // The property `probe` shows which of the two definitions, with or without rules, is in force.
        root["properties"]["probe"] =
            json!({"type": "string", "enum": ["now", if with_rules { "rules" } else { "before" }]});
    }
    let group = group(case);
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("cases.{group}")},
        "spec": {"group": group, "scope": "Cluster",
            "names": {"plural": "cases", "kind": "Case", "listKind": "CaseList", "singular": "case"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": root}}]}})
}

fn without_rules(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(name, _)| *name != "x-kubernetes-validations");
            Value::Object(kept.map(|(name, value)| (name.clone(), without_rules(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_rules).collect(),
        other => other.clone(),
    }
}

fn object(case: &Value, spec: &Value, at: usize) -> Value {
    json!({"apiVersion": format!("{}/v1", group(case)), "kind": "Case", "metadata": {"name": format!("o{at}")},
        "spec": expand(spec)})
}

fn expand(value: &Value) -> Value {
    match value {
        Value::Object(map) => match map.iter().next().filter(|_| map.len() == 1) {
            Some((word, Value::Array(of))) if word.starts_with('$') => {
                let count = of[1].as_u64().expect("a count") as usize;
                match word.as_str() {
                    "$repeat" => vec![expand(&of[0]); count].into(),
                    "$text" => of[0].as_str().expect("a text").repeat(count).into(),
                    "$keys" => {
                        let each = expand(&of[0]);
                        (0..count).map(|number| (format!("k{number}"), each.clone())).collect::<Map>().into()
                    }
                    word => panic!("what is {word}?"),
                }
            }
            _ => map.iter().map(|(name, value)| (name.clone(), expand(value))).collect::<Map>().into(),
        },
        Value::Array(items) => items.iter().map(expand).collect(),
        other => other.clone(),
    }
}

/// The result of a request, in the form of the recordings.
fn verdict(made: Result<Value, Refusal>, is_old: bool, warnings: &[String]) -> Value {
    let mut said = json!({"accepted": made.is_ok()});
    if made.is_ok() && !warnings.is_empty() {
        let mut told: Vec<String> = warnings.iter().map(|warning| normal(warning)).collect();
        told.sort();
        said["warnings"] = json!(told);
    }
    if let Err(refusal) = made {
        let mut causes: Vec<[String; 3]> = refusal
            .causes()
            .into_iter()
            .map(|cause| [cause.field, cause.reason.as_str().to_owned(), normal(&cause.message)])
            .collect();
        if !matches!(refusal, Refusal::Invalid { .. }) {
            causes = vec![[String::new(), String::new(), normal(&refusal.message())]];
            said["code"] = json!(format!("{refusal:?}").chars().take(20).collect::<String>());
        }
        causes.sort();
        let told =
            causes.into_iter().map(|[field, ty, message]| json!({"field": field, "type": ty, "message": message}));
        said["causes"] = told.collect();
    }
    if is_old {
        said["at"] = json!("old");
    }
    said
}

/// A message without the parts that differ from run to run: the group, and the numbers in the names of generated types.
fn normal(message: &str) -> String {
    let mut out = String::new();
    let mut rest = message;
    while let Some(at) = rest.find("selfType") {
        let end = at + "selfType".len();
        out.push_str(&rest[..end]);
        rest = rest[end..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out.push_str(rest);
    {
        let ending = ".cel.example";
        let name = |c: char| c.is_ascii_alphanumeric() || c == '-';
        while let Some(at) = out.find(ending) {
            let start = out[..at].rfind(|c| !name(c)).map_or(0, |before| before + 1);
            out.replace_range(start..at + 1, "");
        }
    }
    out
}
