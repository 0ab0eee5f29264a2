//! Computes how a container stops. First its `preStop` hook runs. Then its command may handle the signal with `trap`.

use super::{Ending, STEPS_MAX, message, runnable};
use crate::environment::{self, Sources};
use holdfast_shell::{MAIN, Machine, OutputStream, RunResult, Signal};
use holdfast_value::Value;

/// How a container stops, and whether its `preStop` hook failed.
pub struct Stop {
    pub ending: Ending,
    pub hook_failed: bool,
}

/// How a container stops if the request to stop reaches it at `told_ms`; `None` if the container has neither a hook nor
/// a trap.
pub fn stops(
    pod: &Value,
    container: &Value,
    allocatable: &Value,
    begin_ms: i64,
    told_ms: i64,
    grace_ms: i64,
) -> Option<Stop> {
    let none = Sources::default();
    let environment = environment::environment(pod, container, &none, allocatable);
    let words = runnable(container, environment::words(container, &environment));
    if !has_hook(container) && !words.as_deref().is_some_and(traps) {
        return None;
    }
    let mut machine = Machine::new(
        environment::setup(pod, container, &none, &environment::volumes(pod, &[container]), allocatable, begin_ms),
        begin_ms,
    );
    let resting = || vec!["sleep".to_owned(), "infinity".to_owned()];
    let words = words.unwrap_or_else(resting);
    machine.start(&words, container["stdin"] == true, false)?;
    advance(&mut machine, begin_ms, told_ms, STEPS_MAX, |_| false);
    Some(stop(&mut machine, container, &words, told_ms, grace_ms))
}

/// The command of a container's `preStop` hook, if the shell knows its program.
fn hook(container: &Value) -> Option<Vec<String>> {
    let command = container["lifecycle"]["preStop"]["exec"]["command"].as_array()?;
    let words: Vec<String> = command.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    words.first().is_some_and(|program| holdfast_shell::knows(program)).then_some(words)
}

fn has_hook(container: &Value) -> bool {
    container["lifecycle"]["preStop"]["sleep"]["seconds"].is_number() || hook(container).is_some()
}

fn traps(words: &[String]) -> bool {
    words.iter().any(|word| word.contains("trap"))
}

/// Stops a container whose command is `words`, and runs its hook and its trap until its grace period is over. A
/// container with neither a hook nor a trap is killed at once.
pub fn stop(machine: &mut Machine, container: &Value, words: &[String], told_ms: i64, grace_ms: i64) -> Stop {
    if !has_hook(container) && !traps(words) {
        return Stop { ending: Ending { after_ms: 0, code: 137, message: String::new() }, hook_failed: false };
    }
    let deadline_ms = told_ms.saturating_add(grace_ms);
    let (mut now_ms, mut hook_failed) = (told_ms, false);
    if let Some(seconds) = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_i64() {
        now_ms = told_ms.saturating_add(seconds.saturating_mul(1000)).min(deadline_ms);
        now_ms = advance(machine, told_ms, now_ms, STEPS_MAX, |machine| machine.exit_code(MAIN).is_some());
    } else if let Some(pid) = hook(container).and_then(|command| machine.start(&command, false, false)) {
        now_ms = advance(machine, now_ms, deadline_ms, STEPS_MAX, |machine| machine.exit_code(pid).is_some());
        // A hook whose program the shell does not know (exit code 127) is assumed to succeed.
        hook_failed = machine.exit_code(pid).is_some_and(|code| !matches!(code, 0 | 127));
    }
    machine.signal(MAIN, Signal::Term);
    let stopped_ms = advance(machine, now_ms, deadline_ms, STEPS_MAX, |machine| machine.exit_code(MAIN).is_some());
    let ending = match machine.exit_code(MAIN) {
        Some(code) => {
            let code = i64::from(code);
            let message = message(container, machine, code, b"");
            Ending { after_ms: stopped_ms - told_ms, code, message }
        }
        None => Ending { after_ms: now_ms - told_ms, code: 137, message: String::new() },
    };
    Stop { ending, hook_failed }
}

/// Runs a machine until `to_ms`, until it has used `steps_max` steps, or until `is_enough` returns true. Returns
/// `to_ms`, or the time at which `is_enough` returned true.
pub fn advance(
    machine: &mut Machine,
    from_ms: i64,
    to_ms: i64,
    steps_max: u64,
    is_enough: impl Fn(&Machine) -> bool,
) -> i64 {
    let (mut now_ms, steps) = (from_ms, machine.steps());
    while machine.steps() - steps < steps_max {
        let turn = machine.run(now_ms, steps_max);
        let pids = [OutputStream::Output, OutputStream::Errors].map(|stream| machine.read(MAIN, stream, usize::MAX));
        if is_enough(machine) {
            return now_ms;
        }
        match turn {
            RunResult::Idle { until_ms: Some(until) } if until <= to_ms => now_ms = until.max(now_ms),
            RunResult::Idle { .. } if pids.iter().all(Vec::is_empty) => break,
            _ => {}
        }
    }
    to_ms
}
