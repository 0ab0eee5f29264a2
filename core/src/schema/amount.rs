//! Quantities as numbers, which can be added and compared.

use super::quantity::{self, Notation};
use holdfast_value::Value;
use std::cmp::Ordering;
use std::fmt;

/// A quantity as a number of billionths and its notation. An amount that does not fit 128 bits becomes the nearest
/// amount that does.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    nanos: i128,
    notation: Notation,
}

const UNIT: i128 = 1_000_000_000;
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Amount {
    pub const ZERO: Amount = Amount { nanos: 0, notation: Notation::Decimal };

    pub fn whole(number: i64) -> Amount {
        Amount { nanos: i128::from(number) * UNIT, notation: Notation::Decimal }
    }

    /// Parses a quantity; `None` if the text is not a quantity.
    pub fn parse(text: &str) -> Option<Amount> {
        quantity::read(text).map(|(nanos, notation)| Amount { nanos, notation })
    }

    /// Parses a quantity in a document, which may be a string or a number.
    pub fn of(value: &Value) -> Option<Amount> {
        match value {
            Value::String(text) => Amount::parse(text),
            Value::Number(number) => Amount::parse(&number.to_string()),
            _ => None,
        }
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The sum of two amounts. Its notation is the notation of `self`, or of `other` if `self` is zero.
    pub fn plus(self, other: Amount) -> Amount {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Amount { nanos: self.nanos.saturating_add(other.nanos), notation }
    }

    pub fn minus(self, other: Amount) -> Amount {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Amount { nanos: self.nanos.saturating_sub(other.nanos), notation }
    }

    /// The amount, limited to a range in which sums over any number of objects stay exact. So an amount that was added to
    /// a sum can be subtracted again.
    pub fn countable(self) -> Amount {
        const MOST: i128 = i128::MAX >> 32;
        Amount { nanos: self.nanos.clamp(-MOST, MOST), ..self }
    }

    pub fn or_more(self, other: Amount) -> Amount {
        if other.nanos > self.nanos { other } else { self }
    }

    /// `self` divided by `other`, for texts, and for comparisons in which Kubernetes rounds in the same way.
    pub fn ratio(self, other: Amount) -> f64 {
        self.nanos as f64 / other.nanos as f64
    }

    /// The amount rounded up to a whole number of units.
    pub fn rounded_up(self) -> Amount {
        let nanos = self.nanos.saturating_sub(self.nanos.rem_euclid(UNIT));
        let more = if self.nanos.rem_euclid(UNIT) == 0 { 0 } else { UNIT };
        Amount { nanos: nanos.saturating_add(more), ..self }
    }
}

impl Default for Amount {
    fn default() -> Amount {
        Amount::ZERO
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Amount) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Amount) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Amount) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// Prints the amount in Kubernetes' canonical form: with the largest suffix that leaves a whole number.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.rounded_up().nanos / UNIT;
        match self.notation {
            Notation::Binary if whole.unsigned_abs() >= 1024 => {
                let steps = (whole.trailing_zeros() as usize / 10).min(BINARY.len() - 1);
                write!(f, "{}{}", whole >> (10 * steps), BINARY[steps])
            }
            notation => {
                let text = match notation {
                    Notation::Exponent => format!("{}e-9", self.nanos),
                    _ => format!("{}n", self.nanos),
                };
                f.write_str(&quantity::canonical(&text).unwrap_or(text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).expect(text)
    }

    #[test]
    fn a_sum_is_written_as_its_parts() {
        for (parts, expected) in [
            (&["0", "3Gi"][..], "3Gi"),
            (&["1Gi", "512Mi"], "1536Mi"),
            (&["1Gi", "1G"], "2073741824"),
            (&["100m", "1"], "1100m"),
            (&["1e3", "1"], "1001"),
            (&["500m", "500m"], "1"),
            (&["1Ki", "-1000"], "24"),
            (&["1", "1n"], "1000000001n"),
            (&[], "0"),
        ] {
            let sum = parts.iter().fold(Amount::ZERO, |sum, part| sum.plus(amount(part)));
            assert_eq!(sum.to_string(), expected, "{parts:?}");
        }
    }

    #[test]
    fn amounts_are_written_as_the_canonical_text() {
        for text in ["1500m", "3Gi", "1G", "1e3", "0", "-5", "-2Ki", "1536Mi", "12345", "1k"] {
            assert_eq!(amount(text).to_string(), quantity::canonical(text).expect(text));
        }
        assert_eq!(amount("1500m").rounded_up().to_string(), "2");
        assert_eq!(amount("-1500m").rounded_up().to_string(), "-1");
        assert!(amount("1Gi") > amount("1G") && amount("1000m") == Amount::whole(1));
    }

    #[test]
    fn no_sum_overflows() {
        let most = amount(&format!("{}n", i128::MAX));
        assert_eq!(most.plus(most), most);
        assert!(!most.rounded_up().plus(Amount::whole(1)).to_string().is_empty());
    }

    #[test]
    fn what_is_countable_can_be_taken_away_again() {
        let most = amount("9223372036854775807E").countable();
        assert!(most > amount("9223372036854775807"));
        let sum = [most, most, amount("1"), most].into_iter().fold(Amount::ZERO, Amount::plus);
        assert_eq!(sum.minus(most).minus(most).minus(most), amount("1"));
        assert_eq!(amount("-1e30").countable().plus(most), Amount::ZERO);
    }
}
