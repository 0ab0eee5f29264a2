use super::{RenderFailure, Surroundings, Template};
use holdfast_value::{Value, json};

struct Fixed;

impl Surroundings for Fixed {
    fn now(&self) -> String {
        "2026-01-02T03:04:05.678901234Z".into()
    }
    fn start_time(&self) -> String {
        "2026-01-01T00:00:00Z".into()
    }
    fn node_ip(&self, node: Option<&str>) -> String {
        format!("ip-of-{}", node.unwrap_or("this"))
    }
    fn node_name(&self) -> String {
        "this".into()
    }
    fn pod_ip(&self, node: Option<&str>, host: bool, uid: &str) -> String {
        format!("{}/{host}/{uid}", node.unwrap_or("this"))
    }
    fn chance(&self) -> u64 {
        7
    }
}

fn rendered(source: &str, document: &Value) -> Result<String, String> {
    Template::parse(source)?.render(document, &Fixed).map_err(|why| why.to_string())
}

#[test]
fn templates_give_what_go_gives() {
    let pod = json!({
        "metadata": {"name": "p", "uid": "u", "annotations": {"a/b": "x"}},
        "spec": {"nodeName": "n", "containers": [{"name": "a", "image": "i:1"}, {"name": "b", "restartPolicy": "Always"}]},
        "status": {"count": 3},
    });
    let rows = [
        ("a {{ .metadata.name }} b", "a p b"),
        ("{{ $now := Now }}{{ $now | Quote }}", "\"2026-01-02T03:04:05.678901234Z\""),
        ("{{ range .spec.containers }}{{ .name }};{{ end }}", "a;b;"),
        ("{{ range $i, $c := .spec.containers }}{{ $i }}={{ $c.name }} {{ end }}", "0=a 1=b "),
        ("{{ range .missing }}x{{ else }}none{{ end }}", "none"),
        (
            "{{ range .spec.containers }}{{ if eq .restartPolicy \"Always\" }}{{ .name }}{{ break }}{{ end }}{{ end }}",
            "b",
        ),
        ("{{ if .missing }}a{{ else if .status }}b{{ else }}c{{ end }}", "b"),
        ("{{ with .missing }}{{ . }}{{ else }}c{{ end }}", "c"),
        ("{{ with .status }}{{ .count }}/{{ $.metadata.name }}{{ end }}", "3/p"),
        ("{{ or .missing .metadata.name \"z\" }}{{ and .metadata.name .missing }}", "p<no value>"),
        ("{{ or (index .metadata.annotations \"a/b\") \"d\" | Quote }}", "\"x\""),
        ("{{ $a := or .metadata.labels dict }}{{ or ( index $a \"q\" ) \"d\" }}", "d"),
        ("{{ add1 .status.count }} {{ add 1 2 3 }} {{ sub 5 2 }} {{ mul 2 3 }}", "4 6 3 6"),
        ("{{ printf \"%s-%03d|%-3s|%q\" .metadata.name .status.count \"x\" \"y\" }}", "p-003|x  |\"y\""),
        (
            "{{ NodeIPWith .spec.nodeName }} {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid \"\" ) \"\" \"\" }}",
            "ip-of-n n/false/u",
        ),
        ("a\n  {{- /* nothing */ -}}\n b {{- 1 }}", "ab1"),
        (
            "{{ define \"c\" }}<{{ .root.metadata.name }}{{ .x }}>{{ end }}{{ template \"c\" dict \"root\" $ \"x\" 1 }}",
            "<p1>",
        ),
        ("{{ $x := 1 }}{{ range .spec.containers }}{{ $x = add1 $x }}{{ end }}{{ $x }}", "3"),
        ("{{ \"}}\" }}{{ `a\"b` }}", "}}a\"b"),
        ("{{ len .spec.containers }}{{ (index .spec.containers 1).name }}", "2b"),
        ("{{ ne (printf \"%v\" .status.count) \"0\" }}", "true"),
        ("{{ .metadata.name | upper | trunc 1 | default \"z\" }}", "P"),
        ("{{ YAML .status 1 }}", "\n  count: 3\n  "),
    ];
    for (source, wanted) in rows {
        assert_eq!(rendered(source, &pod).as_deref(), Ok(wanted), "{source}");
    }
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let rows = [
        ("{{ env \"HOME\" }}", "\"env\" is not supported"),
        ("{{ if .a }}", "if }} has no end"),
        ("{{ end }}", "unexpected {{ end }}"),
        ("{{ .a", "not closed"),
        ("{{ template \"x\" . }}", "\"x\" is not defined"),
        ("{{ .a | .b }}", "must be a function"),
        ("{{ % }}", "'%' is not supported"),
        ("{{ ( .a }}", "not closed"),
        ("{{ .a ) }}", "not opened"),
    ];
    for (source, complaint) in rows {
        let error = Template::parse(source).expect_err(source);
        assert!(error.contains(complaint), "{source}: {error}");
    }
    assert!(Template::parse(&"{{ if .a }}".repeat(5000)).is_err());
    assert!(Template::parse(&format!("{{{{ {} }}}}", "(".repeat(50_000))).is_err());
}

#[test]
fn templates_that_do_too_much_are_stopped() {
    let rows = [
        "{{ range until 10000 }}{{ range until 10000 }}x{{ end }}{{ end }}",
        "{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}",
        "{{ range until 10000 }}{{ repeat 1000 \"x\" }}{{ end }}",
        "{{ repeat 1000000000 \"x\" }}",
        "{{ div 1 0 }}",
        "{{ index .a.b 3 4 }}{{ index (list 1) 5 }}",
    ];
    for source in rows {
        assert!(rendered(source, &json!({})).is_err(), "{source}");
    }
}

#[test]
fn what_is_rendered_is_yaml() {
    let template = Template::parse("phase: Running\nconditions:\n{{ range .a }}\n- type: {{ . | Quote }}\n{{ end }}\n")
        .expect("a template");
    let document = template.document(&json!({"a": ["x", "y"]}), &Fixed).expect("a document");
    assert_eq!(document, json!({"phase": "Running", "conditions": [{"type": "x"}, {"type": "y"}]}));
    let none = Template::parse("{{ $a := 1 }}\n").expect("a template");
    assert_eq!(none.document(&json!({}), &Fixed), Ok(Value::Null));
    assert!(Template::parse("a: [").expect("a template").document(&json!({}), &Fixed).is_err());
}

/// Every function counts its work, even if little of the result is printed. So a template that exceeds the budget
/// always stops at the same point.
#[test]
fn work_ends_at_the_same_place_for_every_function() {
    let large = vec!["a".repeat(1_000); 2_500];
    let document = json!({"list": large, "text": "b".repeat(200_000), "lines": "\n".repeat(100_000)});
    for source in [
        "{{ range 60000 }}{{ $y := Quote $.list }}{{ end }}",
        "{{ range 100 }}{{ $y := $.list }}{{ end }}",
        "{{ range 100 }}{{ with $ }}{{ end }}{{ end }}",
        "{{ range 1000 }}{{ $y := until 10000 }}{{ end }}",
        "{{ $y := indent 128 .lines }}{{ $z := indent 128 .lines }}",
        "{{ $y := join .text (until 10000) }}",
        "{{ $y := trimAll .text .text }}",
        "{{ range 100 }}{{ $y := .text | upper | lower }}{{ $z := $.text | b64enc }}{{ end }}",
        "{{ range 1000 }}{{ $y := uniq $.list }}{{ end }}",
        "{{ define \"t\" }}{{ end }}{{ range 100 }}{{ template \"t\" $ }}{{ end }}",
    ] {
        let failed = Template::parse(source).expect(source).render(&document, &Fixed);
        assert_eq!(failed, Err(RenderFailure::Spent), "{source}");
    }
    for source in ["{{ Quote .list | len }}", "{{ range .list }}{{ . | len }}{{ end }}", "{{ .text | indent 4 | len }}"]
    {
        let text = Template::parse(source).expect(source).render(&document, &Fixed);
        assert!(text.is_ok(), "{source}: {text:?}");
    }
    // YAML aliases that would expand beyond the limit are refused.
    let source = "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n{{ range until 9 }}c{{ . }}: [*b, *b, *b, *b, *b, *b, *b, *b, *b]\n{{ end }}";
    let read = Template::parse(source).expect(source).document(&document, &Fixed);
    assert!(read.is_ok_and(|value| value.to_string().len() < 100_000));
}
