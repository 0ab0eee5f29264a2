//! Integer arithmetic of `$((…))` and `expr`.

const DEPTH_MAX: u32 = 32;
const BYTES_MAX: usize = 4096;

/// Evaluates an expression. `look_up` returns the text of a variable.
pub fn evaluate(text: &str, look_up: &dyn Fn(&str) -> String) -> Result<i64, String> {
    if text.len() > BYTES_MAX {
        return Err("arithmetic expression is too long".into());
    }
    let mut reader = ExpressionReader { text: text.as_bytes(), at: 0, look_up, depth: 0 };
    let value = reader.choice()?;
    reader.blanks();
    if reader.at < reader.text.len() { Err("arithmetic syntax error".into()) } else { Ok(value) }
}

struct ExpressionReader<'a> {
    text: &'a [u8],
    at: usize,
    look_up: &'a dyn Fn(&str) -> String,
    depth: u32,
}

/// The binary operators by precedence, from the lowest precedence to the highest.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl ExpressionReader<'_> {
    fn blanks(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn takes(&mut self, sign: &str) -> bool {
        self.blanks();
        let rest = &self.text[self.at..];
        if !rest.starts_with(sign.as_bytes()) {
            return false;
        }
        let next = rest.get(sign.len());
        // The sign is only the beginning of a longer operator.
        if matches!((sign, next), ("|", Some(b'|')) | ("&", Some(b'&')) | ("<", Some(b'<')) | (">", Some(b'>'))) {
            return false;
        }
        self.at += sign.len();
        true
    }

    fn choice(&mut self) -> Result<i64, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("arithmetic expression is nested too deeply".into());
        }
        let mut value = self.level(0)?;
        if self.takes("?") {
            let one = self.choice()?;
            if !self.takes(":") {
                return Err("arithmetic syntax error".into());
            }
            let other = self.choice()?;
            value = if value != 0 { one } else { other };
        }
        self.depth -= 1;
        Ok(value)
    }

    fn level(&mut self, level: usize) -> Result<i64, String> {
        let Some(signs) = LEVELS.get(level) else { return self.single() };
        let mut left = self.level(level + 1)?;
        while let Some(sign) = signs.iter().find(|sign| self.takes(sign)) {
            let right = self.level(level + 1)?;
            left = operate(sign, left, right)?;
        }
        Ok(left)
    }

    fn single(&mut self) -> Result<i64, String> {
        self.blanks();
        match self.text.get(self.at) {
            Some(sign @ (b'-' | b'+' | b'!' | b'~')) => {
                self.at += 1;
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err("arithmetic expression is nested too deeply".into());
                }
                let value = self.single()?;
                self.depth -= 1;
                Ok(match sign {
                    b'-' => value.wrapping_neg(),
                    b'!' => i64::from(value == 0),
                    b'~' => !value,
                    _ => value,
                })
            }
            Some(b'(') => {
                self.at += 1;
                let value = self.choice()?;
                if self.takes(")") { Ok(value) } else { Err("arithmetic syntax error".into()) }
            }
            Some(c) if c.is_ascii_alphanumeric() || *c == b'_' => {
                let begin = self.at;
                while self.text.get(self.at).is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_') {
                    self.at += 1;
                }
                let word = String::from_utf8_lossy(&self.text[begin..self.at]).into_owned();
                match word.starts_with(|c: char| c.is_ascii_digit()) {
                    true => number(&word),
                    false => match (self.look_up)(&word).trim() {
                        "" => Ok(0),
                        value => number(value),
                    },
                }
            }
            _ => Err("arithmetic syntax error".into()),
        }
    }
}

fn operate(sign: &str, left: i64, right: i64) -> Result<i64, String> {
    let shift = u32::try_from(right & 63).unwrap_or(0);
    Ok(match sign {
        "||" => i64::from(left != 0 || right != 0),
        "&&" => i64::from(left != 0 && right != 0),
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "==" => i64::from(left == right),
        "!=" => i64::from(left != right),
        "<=" => i64::from(left <= right),
        ">=" => i64::from(left >= right),
        "<" => i64::from(left < right),
        ">" => i64::from(left > right),
        "<<" => left.wrapping_shl(shift),
        ">>" => left.wrapping_shr(shift),
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        _ if right == 0 => return Err("divide by zero".into()),
        "/" => left.wrapping_div(right),
        _ => left.wrapping_rem(right),
    })
}

fn number(text: &str) -> Result<i64, String> {
    let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => i64::from_str_radix(text, 8),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_out() {
        let look_up = |name: &str| if name == "x" { "5".to_owned() } else { String::new() };
        for (text, expected) in [
            ("1+2*3", Some(7)),
            ("(1+2)*3", Some(9)),
            ("x % 3", Some(2)),
            ("x > 4 && y == 0", Some(1)),
            ("-x", Some(-5)),
            ("1 << 4 | 1", Some(17)),
            ("x ? 2 : 3", Some(2)),
            ("0x10", Some(16)),
            ("1/0", None),
            ("9223372036854775807+1", Some(i64::MIN)),
            ("1+", None),
            ("1 2", None),
        ] {
            assert_eq!(evaluate(text, &look_up).ok(), expected, "{text}");
        }
        assert!(evaluate(&"(".repeat(4000), &look_up).is_err());
        assert!(evaluate(&"-".repeat(4000), &look_up).is_err());
    }
}
