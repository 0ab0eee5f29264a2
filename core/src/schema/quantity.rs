//! Quantities as Kubernetes writes them: `500m`, `1.5Gi`, `2e3`.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    Format,
    Suffix,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Problem::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            Problem::Suffix => "unable to parse quantity's suffix",
        })
    }
}

/// Checks that Kubernetes can parse `text` as a quantity.
pub fn check(text: &str) -> Result<(), Problem> {
    parse(text).map(|_| ())
}

/// The canonical form of a quantity, as in Kubernetes: the largest suffix that leaves a whole number, and no amount
/// finer than a billionth. A quantity of more than 38 digits or with a huge exponent is returned unchanged.
pub fn canonical(text: &str) -> Result<String, Problem> {
    let parts = parse(text)?;
    Ok(parts.canonical().unwrap_or_else(|| text.trim().to_string()))
}

/// Compares two quantities by amount; `None` if one of the texts is not a quantity.
pub fn compare(a: &str, b: &str) -> Option<std::cmp::Ordering> {
    Some(nanos(a)?.cmp(&nanos(b)?))
}

/// The amount in billionths, rounded away from zero; `None` if the text is not a quantity.
pub fn nanos(text: &str) -> Option<i128> {
    Some(parse(text).ok()?.nanos())
}

/// The amount in whole units, rounded up; `None` if the text is not a quantity.
pub fn whole(text: &str) -> Option<i128> {
    const UNIT: i128 = 1_000_000_000;
    // The amount is divided before the remainder is added, because adding first could overflow.
    nanos(text).map(|nanos| nanos.div_euclid(UNIT) + i128::from(nanos.rem_euclid(UNIT) != 0))
}

/// The notation in which a quantity is written. A sum is shown in the notation of its first amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    Decimal,
    Exponent,
    Binary,
}

/// The amount in billionths, rounded away from zero, and its notation; `None` if the text is not a quantity.
pub fn read(text: &str) -> Option<(i128, Notation)> {
    let parts = parse(text).ok()?;
    let notation = match parts.suffix {
        Suffix::Decimal(_) => Notation::Decimal,
        Suffix::Exponent(_) => Notation::Exponent,
        Suffix::Binary(_) => Notation::Binary,
    };
    Some((parts.nanos(), notation))
}

#[derive(Debug, Clone, Copy)]
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: Suffix,
}

#[derive(Debug, Clone, Copy)]
enum Suffix {
    /// The exponent of a power of ten that is written as a letter: 3 for `k`.
    Decimal(i32),
    /// The exponent of a power of ten that is written as such: 3 for `e3`.
    Exponent(i32),
    /// The exponent of a power of two: 10 for `Ki`.
    Binary(u32),
}

/// The suffixes for powers of ten, with the exponents of these powers.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
/// The exponent of the smallest unit, nano.
const FINEST: i32 = -9;
/// The maximum amount in billionths, which is a whole number of units. A larger amount counts as this amount, so that a
/// huge request counts as huge and not as nothing.
const MOST: i128 = i128::MAX / 1_000_000_000 * 1_000_000_000;
/// The maximum exponent for which a power of ten is computed.
const POWER_MAX: u32 = 1_000;

fn parse(text: &str) -> Result<Parts<'_>, Problem> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Problem::Format);
    }
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = take(unsigned, |c| c.is_ascii_digit());
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => take(rest, |c| c.is_ascii_digit()),
        None => ("", rest),
    };
    let (_, exponent) = take(suffix, |c| "eEinumkKMGTP".contains(c));
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Problem::Format);
    }
    Ok(Parts { negative, whole, fraction, suffix: read_suffix(suffix)? })
}

fn read_suffix(text: &str) -> Result<Suffix, Problem> {
    if let Some((_, power)) = DECIMAL.iter().find(|(letter, _)| *letter == text) {
        return Ok(Suffix::Decimal(*power));
    }
    if let Some((_, power)) = BINARY.iter().find(|(letters, _)| *letters == text) {
        return Ok(Suffix::Binary(*power));
    }
    let exponent = text.strip_prefix(['e', 'E']).and_then(|digits| digits.parse::<i32>().ok());
    exponent.map(Suffix::Exponent).ok_or(Problem::Suffix)
}

fn take(text: &str, fits: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !fits(c)).unwrap_or(text.len()))
}

impl Parts<'_> {
    /// The amount in billionths, rounded away from zero.
    fn nanos(&self) -> i128 {
        self.exact_nanos().unwrap_or_else(|| self.rough_nanos())
    }

    /// The approximate amount in billionths of a number with too many digits for exact computation.
    fn rough_nanos(&self) -> i128 {
        let (power, shift) = match self.suffix {
            Suffix::Decimal(power) | Suffix::Exponent(power) => (power, 0),
            Suffix::Binary(shift) => (0, shift),
        };
        let Parts { whole, fraction, .. } = self;
        let text = format!("0{whole}.{fraction}0e{}", i64::from(power) - i64::from(FINEST));
        let number = text.parse::<f64>().map_or(f64::INFINITY, |number| number.ceil() * f64::from(shift).exp2());
        // A positive number that is too small for a float counts as one billionth.
        let is_nothing = whole.bytes().chain(fraction.bytes()).all(|digit| digit == b'0');
        let number = (number as i128).clamp(i128::from(!is_nothing), MOST);
        if self.negative { -number } else { number }
    }

    /// The exact amount in billionths, rounded away from zero; `None` if there are too many digits.
    fn exact_nanos(&self) -> Option<i128> {
        let fraction = self.fraction.trim_end_matches('0');
        let digits = format!("{}{fraction}", self.whole);
        let mut number: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        let mut power = -FINEST - i32::try_from(fraction.len()).ok()?;
        match self.suffix {
            Suffix::Binary(shift) => number = number.checked_mul(1_i128.checked_shl(shift)?)?,
            Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => power = power.checked_add(exponent)?,
        }
        number = if power >= 0 {
            number.checked_mul(10_i128.checked_pow(power.unsigned_abs())?)?
        } else {
            divide_up(number, power.unsigned_abs())
        };
        Some(if self.negative { -number } else { number })
    }

    /// The canonical form; `None` if the number has too many digits to compute with.
    fn canonical(&self) -> Option<String> {
        let digits = format!("{}{}", self.whole, self.fraction);
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Some("0".to_string());
        }
        let mut number: i128 = digits.parse().ok()?;
        let mut power = -i32::try_from(self.fraction.len()).ok()?;
        let binary = match self.suffix {
            Suffix::Binary(shift) => {
                number = number.checked_mul(1_i128.checked_shl(shift)?)?;
                // As in Kubernetes, a binary amount below 1024 units is shown in decimal notation.
                let limit = 1024_i128.checked_mul(10_i128.checked_pow(power.unsigned_abs())?)?;
                number >= limit
            }
            Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => {
                power = power.checked_add(exponent).filter(|power| power.unsigned_abs() < POWER_MAX)?;
                false
            }
        };
        let sign = if self.negative { "-" } else { "" };
        if binary {
            let mut whole = divide_up(number, power.unsigned_abs());
            let mut steps = 0;
            while steps < BINARY.len() && whole % 1024 == 0 {
                whole /= 1024;
                steps += 1;
            }
            let letters = steps.checked_sub(1).map_or("", |step| BINARY[step].0);
            return Some(format!("{sign}{whole}{letters}"));
        }
        if power < FINEST {
            number = divide_up(number, (FINEST - power).unsigned_abs());
            power = FINEST;
        }
        while number % 10 == 0 {
            number /= 10;
            power += 1;
        }
        while power.rem_euclid(3) != 0 || (matches!(self.suffix, Suffix::Decimal(_) | Suffix::Binary(_)) && power > 18)
        {
            number = number.checked_mul(10)?;
            power -= 1;
        }
        match self.suffix {
            Suffix::Exponent(_) if power == 0 => Some(format!("{sign}{number}")),
            Suffix::Exponent(_) => Some(format!("{sign}{number}e{power}")),
            _ => {
                let (letter, _) = DECIMAL.iter().find(|(_, exponent)| *exponent == power)?;
                Some(format!("{sign}{number}{letter}"))
            }
        }
    }
}

/// `number / 10^power`, rounded up. `number` must not be negative.
fn divide_up(number: i128, power: u32) -> i128 {
    match 10_i128.checked_pow(power) {
        Some(divisor) => number / divisor + i128::from(number % divisor != 0),
        // The quotient is less than one, so it is rounded up to one, unless the number is zero.
        None => number.min(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    #[test]
    fn canonical_forms() {
        let cases = [
            ("0", "0"),
            ("0.5", "500m"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("100", "100"),
            ("1024Ki", "1Mi"),
            ("0.5Gi", "512Mi"),
            ("1000m", "1"),
            ("1.5Gi", "1536Mi"),
            ("0.0000000001", "1n"),
            ("1e3", "1e3"),
            ("1000e0", "1e3"),
            ("512.5", "512500m"),
            ("0.5Ki", "512"),
            ("-0.5", "-500m"),
            ("1E", "1E"),
            ("1e-3", "1e-3"),
            ("10e2147483647", "10e2147483647"),
            ("1e-2147483648", "1e-2147483648"),
            ("100000000000000000000000000000000000000000", "100000000000000000000000000000000000000000"),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity() {
        for text in ["", "x", "1 Gi", "1.2.3", "1Gi ö", "1e3x"] {
            assert_eq!(check(text), Err(Problem::Format), "{text}");
        }
        for text in ["--1", "1mm", "1e", "1ki", "1m3", "1e99999999999"] {
            assert_eq!(check(text), Err(Problem::Suffix), "{text}");
        }
        for text in ["+1", " 1 ", "1.", ".5", "1E3", "12e-6", "1Ei"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    /// Amounts near the largest that 128 bits can hold are computed correctly, or returned unchanged.
    #[test]
    fn amounts_near_the_limits_do_not_overflow() {
        let largest = i128::MAX.to_string();
        for (text, expected) in [
            (format!("{largest}n"), Some(i128::MAX)),
            (format!("-{largest}n"), Some(-i128::MAX)),
            (format!("{largest}e-10"), Some(i128::MAX / 10 + 1)),
            (format!("{largest}e-47"), Some(2)),
            (format!("0.{largest}"), Some(170_141_184)),
            (largest.to_string(), Some(MOST)),
            (format!("-{largest}Ki"), Some(-MOST)),
            ("1e40".to_owned(), Some(MOST)),
            ("-1e2147483647".to_owned(), Some(-MOST)),
            ("9".repeat(1000), Some(MOST)),
            (format!("0{}", "0".repeat(1000)), Some(0)),
            (format!("0.{}1e9", "0".repeat(1000)), Some(1)),
            (format!("1.{}E", "0".repeat(1000)), Some(1_000_000_000_000_000_000_000_000_000)),
            (format!("1.{}Ei", "0".repeat(1000)), Some((1 << 60) * 1_000_000_000)),
            (format!("0.{}e2147483647", "0".repeat(1000)), Some(0)),
            ("0e2147483647".to_owned(), Some(0)),
            ("1e-2147483648".to_owned(), Some(1)),
            ("9223372036854775807Ki".to_owned(), Some(9_223_372_036_854_775_807 * 1024 * 1_000_000_000)),
        ] {
            assert_eq!(nanos(&text), expected, "{text}");
            assert!(canonical(&text).is_ok(), "{text}");
        }
        assert_eq!(whole(&format!("{largest}n")), Some(i128::MAX / 1_000_000_000 + 1));
        assert_eq!(whole(&format!("-{largest}n")), Some(-(i128::MAX / 1_000_000_000)));
        assert_eq!(whole("1500m"), Some(2));
        assert_eq!(whole("-1500m"), Some(-1));
    }

    proptest::proptest! {
        #[test]
        fn canonical_is_stable(text in "[+-]?[0-9]{1,12}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[+-]?[0-9]{1,2})?") {
            if let Ok(once) = canonical(&text) {
                // The canonical form of a binary amount that no binary suffix divides has no suffix, and then it is
                // parsed as a decimal amount.
                let twice = canonical(&once).expect("a quantity");
                proptest::prop_assert_eq!(compare(&once, &twice).unwrap_or(Ordering::Equal), Ordering::Equal);
                proptest::prop_assert_eq!(canonical(&twice), Ok(twice));
            }
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.eEinumkKMGTPx ]{0,50}|[0-9]{1,9}e-?[0-9]{1,10}") {
            let _ = canonical(&text);
        }
    }
}
