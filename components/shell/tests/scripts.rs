//! Tests the output and the exit status of scripts.

use holdfast_shell::files::FileSystem;
use holdfast_shell::{MAIN, Machine, OutputStream, Pid, RunResult, Setup, Signal};
use std::collections::BTreeMap;

const BEGIN_MS: i64 = 1_795_985_684_000;

fn setup() -> Setup {
    let mut files = FileSystem::default();
    let content = |pairs: &[(&str, &str)]| -> BTreeMap<String, (Vec<u8>, u32)> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (text.as_bytes().to_vec(), 0o644))).collect()
    };
    files.mount("/etc/config", &content(&[("a", "1\n"), ("b", "2\n")]), true, 0).expect("mounted");
    let environment = [("PATH", "/bin"), ("GREETING", "hello")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Setup { files, environment, folder: "/".into(), hostname: "web-0".into(), ..Setup::default() }
}

struct Ran {
    output: String,
    errors: String,
    code: Option<i32>,
    after_ms: i64,
    steps: u64,
}

/// Runs words as the container's command, until the command ends or is idle.
fn run(words: &[&str], input: &[u8]) -> Ran {
    let mut machine = Machine::new(setup(), BEGIN_MS);
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let pid = machine.start(&words, true, false).expect("begun");
    drive(&mut machine, pid, input, 400_000)
}

fn drive(machine: &mut Machine, pid: Pid, input: &[u8], steps_max: u64) -> Ran {
    let (mut now, mut at) = (BEGIN_MS, 0);
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let mut code = None;
    while machine.steps() < steps_max {
        at += machine.write(pid, &input[at..]);
        if at == input.len() {
            machine.end_input(pid);
        }
        let turn = machine.run(now, 10_000);
        output.extend(machine.read(pid, OutputStream::Output, usize::MAX));
        errors.extend(machine.read(pid, OutputStream::Errors, usize::MAX));
        code = machine.exit_code(pid);
        if code.is_some() {
            break;
        }
        match turn {
            RunResult::Idle { until_ms: Some(until) } if until > now => now = until,
            RunResult::Idle { .. } if at < input.len() => {}
            RunResult::Idle { until_ms: None } => break,
            _ => {}
        }
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { output: text(output), errors: text(errors), code, after_ms: now - BEGIN_MS, steps: machine.steps() }
}

fn sh(script: &str) -> Ran {
    run(&["sh", "-c", script], b"")
}

#[test]
fn scripts_put_out_what_shells_do() {
    for (script, output, code) in [
        ("echo hello world", "hello world\n", 0),
        ("echo -n a; echo -e 'b\\tc'", "ab\tc\n", 0),
        ("printf '%s-%03d\\n' a 7 b 8", "a-007\nb-008\n", 0),
        ("false; echo $?; true; echo $?", "1\n0\n", 0),
        ("exit 3", "", 3),
        ("true && echo yes || echo no", "yes\n", 0),
        ("false && echo yes || echo no", "no\n", 0),
        ("! true; echo $?", "1\n", 0),
        ("x=5; y=$((x*2+1)); echo $y \"$x\" '$x'", "11 5 $x\n", 0),
        ("x='a  b'; echo $x; echo \"$x\"", "a b\na  b\n", 0),
        ("x='a\\b'; echo $x; y=$x; echo \"$y\"", "a\\b\na\\b\n", 0),
        ("for i in 1 2 3; do echo $i; done", "1\n2\n3\n", 0),
        ("i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done", "0\n1\n2\n", 0),
        ("for i in 1 2 3 4; do [ $i = 2 ] && continue; [ $i = 4 ] && break; echo $i; done", "1\n3\n", 0),
        ("until false; do echo once; break; done", "once\n", 0),
        ("if [ -f /etc/config/a ]; then cat /etc/config/a; elif true; then echo x; else echo y; fi", "1\n", 0),
        ("case abc in x) echo x;; a*) echo a;; *) echo o;; esac", "a\n", 0),
        ("case $GREETING in hello|bye) echo g ;; esac", "g\n", 0),
        ("f() { echo \"$1-$#\"; return 4; }; f a b; echo $?", "a-2\n4\n", 0),
        ("f() { local x=1; x=2; }; x=0; f; echo $x", "0\n", 0),
        ("echo a | cat | tr a-z A-Z", "A\n", 0),
        ("seq 1 5 | tail -n 2 | head -1", "4\n", 0),
        ("yes | head -n 2", "y\ny\n", 0),
        ("(exit 3) | true; echo $?; set -o pipefail; (exit 3) | true; echo $?", "0\n3\n", 0),
        ("echo $(echo a; echo b) `echo c`", "a b c\n", 0),
        ("x=$(exit 7); echo $?", "7\n", 0),
        ("echo hi > /tmp/f; echo more >> /tmp/f; cat < /tmp/f; wc -l < /tmp/f", "hi\nmore\n2\n", 0),
        ("cat <<EOF\n$GREETING $((1+1))\nEOF\necho end", "hello 2\nend\n", 0),
        ("cat <<'EOF' | wc -c\n$GREETING\nEOF", "10\n", 0),
        ("set -e; false; echo never", "", 1),
        ("set -e; if false; then :; fi; false || true; ! true; echo on", "on\n", 0),
        ("trap 'echo bye' EXIT; echo hi; exit 2", "hi\nbye\n", 2),
        ("echo ${x:-none} ${GREETING:+set} ${#GREETING} ${GREETING%lo} ${GREETING#he}", "none set 5 hel llo\n", 0),
        ("p=/a/b/c.txt; echo ${p##*/} ${p%/*} ${p%%.*}", "c.txt /a/b /a/b/c\n", 0),
        ("echo ${x:=v}; echo $x", "v\nv\n", 0),
        ("set -- a 'b c'; for x in \"$@\"; do echo \"<$x>\"; done; shift; echo $# $1", "<a>\n<b c>\n1 b c\n", 0),
        ("echo a b | { read x y; echo $y $x; }", "b a\n", 0),
        ("printf 'a\\nb\\n' | while read l; do echo \"[$l]\"; done", "[a]\n[b]\n", 0),
        ("ls /etc/config; echo /etc/config/*", "a\nb\n/etc/config/a /etc/config/b\n", 0),
        (
            "mkdir -p /data/x && cd /data && touch x/f && ls x && pwd; rm -r x; test -e x || echo gone",
            "f\n/data\ngone\n",
            0,
        ),
        ("hostname; id -u; whoami; pwd", "web-0\n0\nroot\n/\n", 0),
        ("date -u +%Y-%m-%dT%H:%M:%SZ; sleep 61; date +%s", "2026-11-29T20:54:44Z\n1795985745\n", 0),
        ("env | grep GREE; printenv GREETING", "GREETING=hello\nhello\n", 0),
        ("A=1 env | grep ^A=; echo [$A]", "A=1\n[]\n", 0),
        ("export B=2; sh -c 'echo $B $0 $1' name arg", "2 name arg\n", 0),
        (
            "echo 'echo from file $1' > /tmp/s.sh; sh /tmp/s.sh x; chmod +x /tmp/s.sh; /tmp/s.sh y",
            "from file x\nfrom file y\n",
            0,
        ),
        ("eval 'x=1'; echo $x; echo y=2 > /tmp/y; . /tmp/y; echo $y", "1\n2\n", 0),
        ("echo abc | grep -q b && echo found; echo abc | grep -c x", "found\n0\n", 1),
        ("printf 'b\\na\\nb\\n' | sort | uniq -c", "      1 a\n      2 b\n", 0),
        ("echo a:b:c | cut -d: -f2,3", "b:c\n", 0),
        ("echo hello | base64; echo aGVsbG8K | base64 -d", "aGVsbG8K\nhello\n", 0),
        ("sleep 100 & p=$!; kill $p; wait $p; echo $?", "143\n", 0),
        ("(sleep 5; echo late) & sleep 1; echo soon; wait; echo end", "soon\nlate\nend\n", 0),
        ("timeout 2 sleep 10; echo $?; timeout 20 sleep 1; echo $?", "124\n0\n", 0),
        ("command -v sh; command -v nginx || echo none", "sh\nnone\n", 0),
        ("echo out; echo err >&2", "out\n", 0),
        ("echo both > /dev/null 2>&1; echo x 2>/dev/null", "x\n", 0),
        ("test 1 -lt 2 -a ! -d /nowhere && [ -z '' ] && [ a != b ] && echo ok", "ok\n", 0),
        ("expr 1 + 2; seq -s, 3", "3\n1,2,3\n", 0),
        ("tar cf /tmp/a.tar -C /etc config && mkdir /out && tar xf /tmp/a.tar -C /out && cat /out/config/b", "2\n", 0),
        (
            "tar cf - /etc/config | (mkdir /o; cd /o; tar xf -); find /o -type f",
            "/o/etc/config/a\n/o/etc/config/b\n",
            0,
        ),
        ("exec echo replaced; echo never", "replaced\n", 0),
        ("# only a remark\necho a # more\n\n\necho b", "a\nb\n", 0),
        ("echo a; echo b &&\n echo c", "a\nb\nc\n", 0),
        ("[ x", "", 2),
        ("echo 'unterminated", "", 2),
        ("fi", "", 2),
        ("cat /nowhere", "", 1),
        ("echo x > /etc/config/a", "", 1),
        ("x() { x; }; x", "", 2),
        ("echo $((1/0))", "", 2),
    ] {
        let ran = sh(script);
        assert_eq!((ran.output.as_str(), ran.code), (output, Some(code)), "{script}\n{}", ran.errors);
    }
}

#[test]
fn time_passes_as_the_caller_says() {
    for (script, after_ms, code) in [
        ("sleep 30 && exit 1", 30_000, Some(1)),
        ("sleep 1m 30; exit", 90_000, Some(0)),
        ("for i in 1 2 3; do sleep 0.5; done", 1500, Some(0)),
        ("sleep infinity", 0, None),
        ("tail -f /dev/null", 0, None),
        ("sleep 5 & sleep 3; wait", 5000, Some(0)),
    ] {
        let ran = sh(script);
        assert_eq!((ran.after_ms, ran.code), (after_ms, code), "{script}");
    }
}

#[test]
fn what_never_ends_is_bounded() {
    for script in [
        "while true; do :; done",
        "while true; do sleep 1; done",
        "yes > /dev/null",
        "x=a; while true; do x=$x$x; done",
        ":(){ :|:& };:",
        "f() { f & f; }; f",
        "while true; do echo a >> /tmp/f; done",
        "i=0; while true; do i=$((i+1)); echo > /tmp/$i; done 2>/dev/null",
        "printf %1000000000s x",
        "echo ${x:-$(yes)}",
        "cat /tmp/nothing $(seq 1 1000000000)",
        "sh -c \"$0\" \"$0\"",
        "while true; do sleep 1 & done",
        "echo a | while true; do cat; done",
    ] {
        let ran = run(&["sh", "-c", script, script], b"");
        assert!(ran.steps < 420_000 && ran.output.len() < 10 << 20, "{script}: {} steps", ran.steps);
    }
}

#[test]
fn nested_too_deeply_is_refused() {
    for (open, close) in [("(", ")"), ("$(", ")"), ("if true; then ", "; fi"), ("${x:-", "}"), ("{ ", "; }")] {
        let script = format!("{}echo a{}", open.repeat(3000), close.repeat(3000));
        assert_eq!(sh(&script).code, Some(2), "{open}");
    }
}

#[test]
fn a_program_that_is_not_known_is_told() {
    let ran = run(&["sh", "-c", "echo a; nginx -g x; echo b"], b"");
    assert_eq!((ran.output.as_str(), ran.code), ("a\n", None), "the container's own command rests there");
    let mut machine = Machine::new(setup(), BEGIN_MS);
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    machine.start(&words(&["nginx"]), false, false).expect("begun");
    machine.run(BEGIN_MS, 1000);
    assert_eq!(machine.unknown().as_deref(), Some("nginx"));
    let pid = machine.start(&words(&["sh", "-c", "foo; echo $?"]), false, false).expect("begun");
    let ran = drive(&mut machine, pid, b"", 10_000);
    assert_eq!((ran.output.as_str(), ran.errors.as_str()), ("127\n", "sh: foo: not found\n"));
}

#[test]
fn an_exec_and_the_containers_own_command_share_files() {
    let mut machine = Machine::new(setup(), BEGIN_MS);
    let words = |script: &str| vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    let main = machine.start(&words("while [ ! -f /tmp/go ]; do sleep 1; done; exit 5"), false, false).expect("begun");
    assert_eq!(main, MAIN);
    assert_eq!(machine.run(BEGIN_MS, 1000), RunResult::Idle { until_ms: Some(BEGIN_MS + 1000) });
    let exec = machine.start(&words("touch /tmp/go; echo log > /proc/1/fd/1"), false, false).expect("begun");
    machine.run(BEGIN_MS + 10, 1000);
    assert_eq!(machine.exit_code(exec), Some(0));
    assert_eq!(machine.read(MAIN, OutputStream::Output, 100), b"log\n");
    machine.run(BEGIN_MS + 1000, 1000);
    assert_eq!(machine.exit_code(MAIN), Some(5));
}

#[test]
fn a_command_that_is_forgotten_leaves_nothing() {
    let mut machine = Machine::new(setup(), BEGIN_MS);
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    machine.start(&words(&["sleep", "infinity"]), false, false).expect("begun");
    // Each command starts three processes, and a container has at most 32 processes. So the loop works only if `forget`
    // ends all processes of a command.
    for _ in 0..100 {
        let pid = machine.start(&words(&["sh", "-c", "tail -f /dev/null | cat"]), false, false).expect("there is room");
        machine.run(BEGIN_MS, 1000);
        machine.forget(pid);
    }
    assert_eq!(machine.run(BEGIN_MS, 1000), RunResult::Idle { until_ms: None });
}

#[test]
fn signals_reach_traps() {
    let begin = |script: &str| {
        let mut machine = Machine::new(setup(), BEGIN_MS);
        machine.start(&["sh".into(), "-c".into(), script.into()], false, false).expect("begun");
        machine.run(BEGIN_MS, 1000);
        machine.signal(MAIN, Signal::Term);
        machine.run(BEGIN_MS, 1000);
        (machine.exit_code(MAIN), machine.read(MAIN, OutputStream::Output, 100))
    };
    assert_eq!(begin("trap 'echo term; exit 3' TERM; sleep 100"), (Some(3), b"term\n".to_vec()));
    assert_eq!(begin("trap 'echo term' TERM; sleep 100; echo after"), (Some(0), b"term\nafter\n".to_vec()));
    assert_eq!(begin("sleep 100"), (None, Vec::new()), "the first process is protected");
}

#[test]
fn a_terminal_is_talked_to() {
    let mut machine = Machine::new(setup(), BEGIN_MS);
    machine.start(&["sleep".into(), "infinity".into()], false, false).expect("begun");
    let shell = machine.start(&["sh".into()], true, true).expect("begun");
    machine.run(BEGIN_MS, 1000);
    machine.write(shell, b"echo $GREETING\rsleep 100\r");
    machine.run(BEGIN_MS, 1000);
    machine.write(shell, b"\x03exit 4\r");
    machine.run(BEGIN_MS, 1000);
    let shown = String::from_utf8(machine.read(shell, OutputStream::Output, 10_000)).expect("text");
    assert!(shown.contains("hello\r\n") && shown.contains("/ # "), "{shown:?}");
    assert_eq!(machine.exit_code(shell), Some(4));
}

#[test]
fn input_is_read_as_it_comes() {
    let ran = run(&["cat"], &b"x".repeat(300_000));
    assert_eq!((ran.output.len(), ran.code), (300_000, Some(0)));
    let ran = run(&["sh"], b"echo a\nif true\nthen echo b\nfi\nexit 6\n");
    assert_eq!((ran.output.as_str(), ran.code), ("a\nb\n", Some(6)));
}

#[test]
fn the_same_script_does_the_same() {
    let script = "for i in $(seq 50); do (echo $i; sleep 0.0$i) & done; wait; mktemp; date +%N";
    let (one, other) = (sh(script), sh(script));
    assert_eq!((one.output, one.after_ms, one.steps), (other.output, other.after_ms, other.steps));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]
    /// Any script is parsed and run within the limits of the shell.
    #[test]
    fn any_script_is_bounded(script in "([a-z $'\"(){};|&<>\\\\\n0-9=*?#`!-]|echo |if |then |fi|do |done|while |\\$\\(|<<E\n|cat |sleep 1|x=){0,60}") {
        let mut machine = Machine::new(setup(), BEGIN_MS);
        let pid = machine.start(&["sh".into(), "-c".into(), script], true, false).expect("begun");
        let ran = drive(&mut machine, pid, b"a b\n", 20_000);
        proptest::prop_assert!(ran.steps < 40_000);
    }

    #[test]
    fn any_archive_is_bounded(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..2000)) {
        let ran = run(&["tar", "xf", "-", "-C", "/tmp"], &bytes);
        proptest::prop_assert!(ran.code.is_some());
    }
}
