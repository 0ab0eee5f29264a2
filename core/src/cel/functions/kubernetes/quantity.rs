//! The library of quantities, such as `500m`, and of their arithmetic.

use super::{Cost, Overload, READS_TEXT, no_overload, own, text};
use crate::cel::functions::overload;
use crate::cel::value::{EvalError, Opaque, Value};
use crate::schema::quantity;
use std::any::Any;
use std::cmp::Ordering;

pub static TABLE: &[Overload] = &[
    overload(
        "quantity(string) -> kubernetes.Quantity",
        |arguments| Quantity::parse(text(arguments)?).map(Value::opaque).map_err(EvalError::new),
        READS_TEXT,
    ),
    overload(
        "isQuantity(string) -> bool",
        |arguments| Ok(Value::Bool(Quantity::parse(text(arguments)?).is_ok())),
        READS_TEXT,
    ),
    overload(
        "sign(kubernetes.Quantity) -> int",
        |arguments| Ok(Value::Int(own::<Quantity>(arguments, 0)?.nanos.signum() as i64)),
        Cost::One,
    ),
    overload(
        "<kubernetes.Quantity>.isInteger() -> bool",
        |arguments| Ok(Value::Bool(own::<Quantity>(arguments, 0)?.whole().is_some())),
        Cost::One,
    ),
    overload(
        "<kubernetes.Quantity>.asInteger() -> int",
        |arguments| {
            let whole = own::<Quantity>(arguments, 0)?.whole();
            whole.map(Value::Int).ok_or_else(|| EvalError::new("cannot convert value to integer"))
        },
        Cost::One,
    ),
    overload(
        "<kubernetes.Quantity>.asApproximateFloat() -> double",
        |arguments| Ok(Value::Double(own::<Quantity>(arguments, 0)?.approximate())),
        Cost::One,
    ),
    overload(
        "<kubernetes.Quantity>.add(kubernetes.Quantity) -> kubernetes.Quantity",
        |arguments| combine(arguments, i128::saturating_add),
        Cost::One,
    ),
    overload(
        "<kubernetes.Quantity>.add(int) -> kubernetes.Quantity",
        |arguments| combine(arguments, i128::saturating_add),
        Cost::One,
    ),
    overload(
        "<kubernetes.Quantity>.sub(kubernetes.Quantity) -> kubernetes.Quantity",
        |arguments| combine(arguments, i128::saturating_sub),
        Cost::One,
    ),
    overload(
        "<kubernetes.Quantity>.sub(int) -> kubernetes.Quantity",
        |arguments| combine(arguments, i128::saturating_sub),
        Cost::One,
    ),
    overload(
        "<kubernetes.Quantity>.isLessThan(kubernetes.Quantity) -> bool",
        |arguments| Ok(Value::Bool(compare(arguments)?.is_lt())),
        Cost::One,
    ),
    overload(
        "<kubernetes.Quantity>.isGreaterThan(kubernetes.Quantity) -> bool",
        |arguments| Ok(Value::Bool(compare(arguments)?.is_gt())),
        Cost::One,
    ),
    overload(
        "<kubernetes.Quantity>.compareTo(kubernetes.Quantity) -> int",
        |arguments| Ok(Value::Int(compare(arguments)? as i64)),
        Cost::One,
    ),
];

fn combine<'a>(arguments: &[Value<'a>], with: fn(i128, i128) -> i128) -> Result<Value<'a>, EvalError> {
    let left = own::<Quantity>(arguments, 0)?;
    let right = match arguments.get(1) {
        Some(Value::Int(number)) => &Quantity { nanos: i128::from(*number) * NANOS, scale: Some(0) },
        Some(other) => match other.downcast() {
            Some(right) => right,
            None => return no_overload(),
        },
        None => return no_overload(),
    };
    Ok(Value::opaque(left.combined(right, with)))
}

fn compare(arguments: &[Value]) -> Result<Ordering, EvalError> {
    Ok(own::<Quantity>(arguments, 0)?.nanos.cmp(&own::<Quantity>(arguments, 1)?.nanos))
}

const NANOS: i128 = 1_000_000_000;
const FINEST: i32 = -9;

#[derive(Debug, Clone, Copy)]
struct Quantity {
    /// The amount in billionths. An amount that does not fit becomes the largest `i128`, which is far above any real
    /// resource.
    nanos: i128,
    /// The exponent of the power of ten in whose multiples Kubernetes stores the amount, if the multiple fits 64 bits.
    /// If the exponent is negative, as for `1000m`, Kubernetes says that the quantity is not an integer, even if its
    /// amount is whole.
    scale: Option<i32>,
}

impl Quantity {
    fn parse(text: &str) -> Result<Quantity, String> {
        quantity::check(text).map_err(|problem| problem.to_string())?;
        // Kubernetes' other parsers of quantities ignore spaces at the ends of the text. The CEL library refuses them.
        if text.trim() != text {
            return Err(quantity::Problem::Format.to_string());
        }
        let unsigned = text.trim_start_matches(['+', '-']);
        let suffix_at = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (digits, suffix) = unsigned.split_at(suffix_at);
        let fraction = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let nanos = quantity::nanos(text).unwrap_or_default();
        let scale = match suffix {
            "n" => Some(-9),
            "u" => Some(-6),
            "m" => Some(-3),
            "" => Some(0),
            "k" => Some(3),
            "M" => Some(6),
            "G" => Some(9),
            "T" => Some(12),
            "P" => Some(15),
            "E" => Some(18),
            _ if suffix.ends_with('i') => (fraction == 0).then_some(0),
            _ => suffix[1..].parse().ok(),
        };
        let scale = scale
            .and_then(|scale: i32| scale.checked_sub(i32::try_from(fraction).ok()?))
            .filter(|scale| *scale >= FINEST && digits.len() <= 18);
        Ok(Quantity { nanos, scale })
    }

    fn whole(&self) -> Option<i64> {
        self.scale.filter(|scale| *scale >= 0)?;
        i64::try_from(self.nanos / NANOS).ok()
    }

    fn approximate(&self) -> f64 {
        match self.scale.and_then(|scale| Some((scale, self.counted(scale)?))) {
            Some((0, number)) => number as f64,
            Some((scale, number)) => number as f64 * format!("1e{scale}").parse().unwrap_or(f64::INFINITY),
            None => self.nanos as f64 / NANOS as f64,
        }
    }

    /// The amount as a multiple of 10 to the power `scale`, rounded toward zero.
    fn counted(&self, scale: i32) -> Option<i128> {
        Some(self.nanos / 10_i128.checked_pow(u32::try_from(scale.checked_sub(FINEST)?).ok()?)?)
    }

    fn combined(&self, other: &Quantity, with: fn(i128, i128) -> i128) -> Quantity {
        let nanos = with(self.nanos, other.nanos);
        let scale = match (self.scale, other.scale) {
            (scale, Some(_)) if other.nanos == 0 => scale,
            (Some(_), scale) if self.nanos == 0 => scale,
            (Some(one), Some(other)) => Some(one.min(other)),
            _ => None,
        };
        let result = Quantity { nanos, scale };
        let fits = |scale: &i32| result.counted(*scale).is_some_and(|number| i64::try_from(number).is_ok());
        Quantity { nanos, scale: scale.filter(fits) }
    }
}

impl Opaque for Quantity {
    fn type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Quantity>().is_some_and(|other| self.nanos == other.nanos)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn numbers() {
        for (text, whole, approximate) in [
            ("0", Some(0), 0.0),
            ("50k", Some(50_000), 50_000.0),
            ("1.5Gi", None, 1_610_612_736.0),
            ("2Gi", Some(2_147_483_648), 2_147_483_648.0),
            ("1.5k", Some(1500), 1500.0),
            ("0.1", None, 0.1),
            ("1000m", None, 1.0),
            ("-3e2", Some(-300), -300.0),
            ("50000000G", Some(50_000_000_000_000_000), 5e16),
            ("9999999999999999999999999999999999999G", None, 1.7014118346046924e29),
        ] {
            let quantity = Quantity::parse(text).expect("a quantity");
            assert_eq!((quantity.whole(), quantity.approximate()), (whole, approximate), "{text}");
        }
        for text in ["200K", "Three", " 1", "1,3G", ""] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
        assert_eq!(Quantity::parse("-1e-40").expect("a quantity").nanos, -1);
    }

    #[test]
    fn numbers_near_the_limits_do_not_overflow() {
        let largest = i128::MAX.to_string();
        let texts = [format!("{largest}n"), format!("-{largest}e-10"), "0e2147483647".into(), "1e2147483647".into()];
        let all = texts.map(|text| Quantity::parse(&text).expect("a quantity"));
        for one in &all {
            one.approximate();
            one.whole();
            for other in &all {
                let sum = one.combined(other, i128::saturating_add);
                let difference = sum.combined(other, i128::saturating_sub).combined(&all[0], i128::saturating_sub);
                difference.approximate();
                difference.whole();
            }
        }
        assert_eq!(all[2].approximate(), 0.0);
    }

    #[test]
    fn arithmetic() {
        let of = |text| Quantity::parse(text).expect("a quantity");
        let sum = of("50k").combined(&of("20"), i128::saturating_add);
        assert_eq!(sum.whole(), Some(50_020));
        assert_eq!(sum.combined(&of("100k"), i128::saturating_sub).whole(), Some(-49_980));
        assert_eq!(of("0.5").combined(&of("0.5"), i128::saturating_add).whole(), None);
        assert_eq!(of("9E").combined(&of("9E"), i128::saturating_add).whole(), None);
    }
}
