//! Calendar times in UTC.

/// A time in UTC: year, month, day and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    pub weekday: usize,
    pub day_of_year: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

pub fn moment(seconds: i64) -> Moment {
    let days = seconds.div_euclid(86_400);
    let of_day = u32::try_from(seconds.rem_euclid(86_400)).unwrap_or(0);
    // The days are counted in eras of 400 years. The years begin in March, so that a leap day is the last day of its
    // year.
    let shifted = days.saturating_add(719_468);
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let small = |number: i64| u32::try_from(number).unwrap_or(0);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let passed = before[usize::try_from(month - 1).unwrap_or(0)] + i64::from(is_leap && month > 2);
    Moment {
        year,
        month: small(month),
        day: small(day),
        hour: of_day / 3600,
        minute: of_day / 60 % 60,
        second: of_day % 60,
        weekday: usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0),
        day_of_year: small(passed + day),
    }
}

/// Formats a time, in milliseconds since 1970, as `date +FORMAT` does.
pub fn format(millis: i64, format: &str) -> String {
    let seconds = millis.div_euclid(1000);
    let now = moment(seconds);
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let month = MONTHS[now.month.clamp(1, 12) as usize - 1];
        let day = DAYS[now.weekday];
        match chars.next() {
            Some('Y') => text.push_str(&format!("{:04}", now.year)),
            Some('y') => text.push_str(&format!("{:02}", now.year.rem_euclid(100))),
            Some('m') => text.push_str(&format!("{:02}", now.month)),
            Some('d') => text.push_str(&format!("{:02}", now.day)),
            Some('e') => text.push_str(&format!("{:2}", now.day)),
            Some('H') => text.push_str(&format!("{:02}", now.hour)),
            Some('I') => text.push_str(&format!("{:02}", (now.hour + 11) % 12 + 1)),
            Some('M') => text.push_str(&format!("{:02}", now.minute)),
            Some('S') => text.push_str(&format!("{:02}", now.second)),
            Some('p') => text.push_str(if now.hour < 12 { "AM" } else { "PM" }),
            Some('N') => text.push_str(&format!("{:09}", millis.rem_euclid(1000) * 1_000_000)),
            Some('s') => text.push_str(&seconds.to_string()),
            Some('j') => text.push_str(&format!("{:03}", now.day_of_year)),
            Some('u') => text.push_str(&(if now.weekday == 0 { 7 } else { now.weekday }).to_string()),
            Some('w') => text.push_str(&now.weekday.to_string()),
            Some('a') => text.push_str(&day[..3]),
            Some('A') => text.push_str(day),
            Some('b' | 'h') => text.push_str(&month[..3]),
            Some('B') => text.push_str(month),
            Some('Z') => text.push_str("UTC"),
            Some('z') => text.push_str("+0000"),
            Some('F') => text.push_str(&self::format(millis, "%Y-%m-%d")),
            Some('T') => text.push_str(&self::format(millis, "%H:%M:%S")),
            Some('R') => text.push_str(&self::format(millis, "%H:%M")),
            Some('D') => text.push_str(&self::format(millis, "%m/%d/%y")),
            Some('c') => text.push_str(&self::format(millis, "%a %b %e %H:%M:%S %Y")),
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('%') => text.push('%'),
            Some(other) => {
                text.push('%');
                text.push(other);
            }
            None => text.push('%'),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn times_are_written() {
        for (seconds, pattern, expected) in [
            (0, "%F %T %a %j", "1970-01-01 00:00:00 Thu 001"),
            (951_782_400, "%F %A %j", "2000-02-29 Tuesday 060"),
            (1_795_985_684, "%c %Z", "Sun Nov 29 20:54:44 2026 UTC"),
            (-1, "%F %T", "1969-12-31 23:59:59"),
            (4_102_444_799, "%D %R %p %q %", "12/31/99 23:59 PM %q %"),
        ] {
            assert_eq!(format(seconds * 1000, pattern), expected, "{seconds}");
        }
        format(i64::MAX, "%c");
        format(i64::MIN, "%c");
    }
}
