//! Whether a cron schedule can be read, and if not, why, in the words that clients know.

use crate::schema;

const DESCRIPTORS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

struct Field {
    first: u32,
    last: u32,
    /// Names of the values, from the first one on.
    names: &'static [&'static str],
}

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Field; 5] = [
    Field { first: 0, last: 59, names: &[] },
    Field { first: 0, last: 23, names: &[] },
    Field { first: 1, last: 31, names: &[] },
    Field { first: 1, last: 12, names: &MONTHS },
    Field { first: 0, last: 6, names: &DAYS },
];

pub(super) fn check(text: &str) -> Result<(), String> {
    // Older clients put the time zone here. The rest is still a schedule.
    let schedule = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
        Some(zoned) => zoned.split_once(' ').map_or("", |(_, rest)| rest.trim()),
        None => text,
    };
    if schedule.starts_with('@') {
        return descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(text, field)| {
        text.split(',').filter(|range| !range.is_empty()).try_for_each(|range| field.check(range))
    })
}

fn descriptor(text: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        Some(duration) => {
            schema::check_duration(duration).map_err(|why| format!("failed to parse duration {text}: {why}"))
        }
        None => Err(format!("unrecognized descriptor: {text}")),
    }
}

impl Field {
    fn check(&self, range: &str) -> Result<(), String> {
        let (span, step) = match range.split('/').collect::<Vec<_>>()[..] {
            [span] => (span, None),
            [span, step] => (span, Some(step)),
            _ => return Err(format!("too many slashes: {range}")),
        };
        let (first, mut last) = match span.split('-').collect::<Vec<_>>()[..] {
            ["*" | "?", ..] => (self.first, self.last),
            [one] => (self.value(one)?, self.value(one)?),
            [first, last] => (self.value(first)?, self.value(last)?),
            _ => return Err(format!("too many hyphens: {range}")),
        };
        if let Some(step) = step {
            let step = number(step)?;
            if !span.contains('-') {
                last = self.last;
            }
            if step == 0 {
                return Err(format!("step of range should be a positive number: {range}"));
            }
        }
        if first < self.first {
            return Err(format!("beginning of range ({first}) below minimum ({}): {range}", self.first));
        }
        if last > self.last {
            return Err(format!("end of range ({last}) above maximum ({}): {range}", self.last));
        }
        if first > last {
            return Err(format!("beginning of range ({first}) beyond end of range ({last}): {range}"));
        }
        Ok(())
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        match self.names.iter().zip(self.first..).find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            Some((_, value)) => Ok(value),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        let shown = serde_json::Value::from(text);
        format!("failed to parse int from {text}: strconv.Atoi: parsing {shown}: invalid syntax")
    })
}
