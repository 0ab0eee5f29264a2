//! Durations as Go writes them: `15s`, `1m0s`, `1h0m0.5s`.

/// The text of a duration in nanoseconds.
pub fn text(nanoseconds: i64) -> String {
    let (sign, nanoseconds) = (if nanoseconds < 0 { "-" } else { "" }, nanoseconds.unsigned_abs());
    // Go uses the largest unit in which the number before the point is not 0.
    let (unit, name) = match nanoseconds {
        0 => return "0s".into(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (whole, part) = (nanoseconds / unit, nanoseconds % unit);
    let digits = unit.ilog10() as usize;
    let part = format!("{part:0digits$}");
    let part = part.trim_end_matches('0');
    let point = if unit == 1 || part.is_empty() { String::new() } else { format!(".{part}") };
    if name != "s" {
        return format!("{sign}{whole}{point}{name}");
    }
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}{point}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}{point}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}{point}s"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations_are_written_as_go_does() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (15_000_000_000, "15s"),
            (60_000_000_000, "1m0s"),
            (3_600_500_000_000, "1h0m0.5s"),
            (250_000_000, "250ms"),
            (1_500, "1.5µs"),
            (-2_000_000_000, "-2s"),
            (5, "5ns"),
        ] {
            assert_eq!(super::text(nanoseconds), text);
        }
    }
}
