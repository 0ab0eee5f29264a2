//! Starts processes whose wall clock is wrong.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Shifts the wall clock of a command's process by `seconds` seconds. Its monotonic clock is not shifted.
pub fn shift(command: &mut Command, seconds: i64) {
    command.env("LD_PRELOAD", library()).env("CLOCK_SHIFT_SECONDS", seconds.to_string());
}

/// The library that is preloaded, compiled once.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = crate::server::target().join("tmp");
        std::fs::create_dir_all(&folder).expect("a folder");
        let (library, new) = (folder.join("clock.so"), folder.join(format!("clock-{}.so", std::process::id())));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&new).arg(crate::folder().join("clock/clock.c"));
        let status = compiler.status().unwrap_or_else(|error| panic!("cannot run {compiler:?}: {error}"));
        assert!(status.success(), "{compiler:?} failed");
        // Other tests may compile the library at the same time, so the file is replaced atomically.
        std::fs::rename(&new, &library).expect("the library is put in place");
        library
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_process_has_another_time() {
        let now = || {
            let mut command = Command::new("date");
            command.arg("+%s");
            command
        };
        let told = |mut command: Command| -> i64 {
            let output = command.output().expect("run date");
            String::from_utf8(output.stdout).expect("text").trim().parse().expect("seconds")
        };
        for seconds in [-86400, 86400] {
            let mut shifted = now();
            shift(&mut shifted, seconds);
            let (here, there) = (told(now()), told(shifted));
            assert!((there - here - seconds).abs() < 3600, "{here} {there}");
        }
    }
}
