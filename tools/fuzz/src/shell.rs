//! The target for the scripts that users run in containers.

// Each fuzz target is a program that compiles this whole file and uses one of its functions.
#![allow(dead_code)]

use holdfast_shell::{Machine, OutputStream, RunResult, Setup};

/// A target and the name of its folder of seeds.
type Named = (&'static str, fn(&[u8]));

/// All targets for shell scripts.
pub const TARGETS: [Named; 1] = [("shell", shell)];

/// The maximum number of steps of a script.
const STEPS_MAX: u64 = 20_000;

/// Parses a script and runs it within the limit of steps. A second run must give the same result.
pub fn shell(bytes: &[u8]) {
    let script = String::from_utf8_lossy(bytes).into_owned();
    let first = gone(&script);
    assert!(first.1 <= 2 * STEPS_MAX, "{} steps", first.1);
    assert_eq!(gone(&script), first, "the same script does the same");
}

/// Runs a script, and returns its exit status, the number of its steps, and the number of bytes of its output.
fn gone(script: &str) -> (Option<i32>, u64, usize) {
    let mut machine = Machine::new(Setup { folder: "/".into(), ..Setup::default() }, 0);
    let words = ["sh", "-c", script].map(str::to_owned);
    let Some(pid) = machine.start(&words, true, false) else { return (None, 0, 0) };
    let (mut now_ms, mut put_out) = (0, 0);
    machine.write(pid, b"a b\nc\n");
    machine.end_input(pid);
    while machine.steps() < STEPS_MAX {
        let turn = machine.run(now_ms, STEPS_MAX);
        let some: usize = [OutputStream::Output, OutputStream::Errors]
            .map(|stream| machine.read(pid, stream, usize::MAX).len())
            .iter()
            .sum();
        put_out += some;
        if let Some(code) = machine.exit_code(pid) {
            return (Some(code), machine.steps(), put_out);
        }
        match turn {
            RunResult::Idle { until_ms: Some(until) } => now_ms = until,
            RunResult::Idle { until_ms: None } if some == 0 => break,
            _ => {}
        }
    }
    (None, machine.steps(), put_out)
}
