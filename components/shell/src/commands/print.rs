//! The commands `echo` and `printf`.

use super::{given, wrong};
use crate::shell::{Shell, ShellResult};

/// The maximum width of a field of `printf`, in characters.
const WIDTH_MAX: usize = 4096;

pub async fn echo(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let (mut ends_line, mut escapes, mut at) = (true, false, 0);
    while let Some(letters) = words.get(at).and_then(|word| word.strip_prefix('-')) {
        if letters.is_empty() || !letters.chars().all(|letter| "neE".contains(letter)) {
            break;
        }
        ends_line &= !letters.contains('n');
        escapes |= letters.contains('e');
        at += 1;
    }
    let mut text = words[at..].join(" ").into_bytes();
    if escapes {
        let (escaped, goes_on) = unescaped(&String::from_utf8_lossy(&text), true);
        text = escaped;
        ends_line &= goes_on;
    }
    if ends_line {
        text.push(b'\n');
    }
    shell.put(1, &text).await?;
    Ok(0)
}

/// Replaces escapes such as `\n` in a text. Returns the bytes, and whether the output continues after the text.
fn unescaped(text: &str, zero: bool) -> (Vec<u8>, bool) {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    let digits = |begin: usize, max: usize, base: u32| {
        let count =
            bytes[begin.min(bytes.len())..].iter().take(max).take_while(|b| (**b as char).is_digit(base)).count();
        let digits = std::str::from_utf8(&bytes[begin..begin + count]).unwrap_or_default();
        (count, u32::from_str_radix(digits, base).unwrap_or(0))
    };
    while at < bytes.len() {
        if bytes[at] != b'\\' || at + 1 == bytes.len() {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        at += 2;
        match bytes[at - 1] {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'e' => out.push(0x1b),
            b'f' => out.push(12),
            b'v' => out.push(11),
            b'\\' => out.push(b'\\'),
            b'c' => return (out, false),
            b'x' => {
                let (count, value) = digits(at, 2, 16);
                at += count;
                out.push(value as u8);
            }
            digit @ b'0'..=b'7' => {
                let begin = if zero && digit == b'0' { at } else { at - 1 };
                let (count, value) = digits(begin, 3, 8);
                at = begin + count;
                out.push(value as u8);
            }
            other => out.extend([b'\\', other]),
        }
    }
    (out, true)
}

pub async fn printf(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let words = if words.first().is_some_and(|word| word == "--") { &words[1..] } else { words };
    let Some((format, mut values)) = words.split_first() else {
        return wrong(shell, "sh", "printf: usage: printf FORMAT [ARG...]").await.map(|_| 2);
    };
    let mut status = 0;
    loop {
        let before = values.len();
        let (out, goes_on, wrong) = formatted(format, &mut values);
        shell.put(1, &out).await?;
        if let Some(value) = wrong {
            shell.complain(&format!("sh: {value}: invalid number")).await?;
            status = 1;
        }
        // As long as arguments remain, the format is applied to them again.
        if values.is_empty() || values.len() == before || !goes_on {
            return Ok(status);
        }
    }
}

/// Applies the format of `printf` once. Returns the text, whether the output continues, and the first argument that
/// should be a number but is not.
fn formatted(format: &str, values: &mut &[String]) -> (Vec<u8>, bool, Option<String>) {
    let mut wrong = None;
    let mut out = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (text, goes_on) = unescaped(&rest[..at], false);
        out.extend(text);
        if !goes_on {
            return (out, false, wrong);
        }
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            out.push(b'%');
            rest = behind;
            continue;
        }
        let mut next = || {
            let (first, others) = values.split_first()?;
            *values = others;
            Some(first.clone())
        };
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (spec, letter) = (&rest[..end], rest[end..].chars().next());
        let spec =
            if spec.contains('*') { spec.replacen('*', &next().unwrap_or_default(), 1) } else { spec.to_owned() };
        let left = spec.contains('-');
        let digits = spec.trim_start_matches(['-', '+', ' ', '#', '0']);
        let zeros = spec[..spec.len() - digits.len()].contains('0') && !left;
        let plus = spec[..spec.len() - digits.len()].contains('+');
        let (width, precision) = match digits.split_once('.') {
            Some((width, precision)) => (width, Some(precision.parse().unwrap_or(0usize).min(WIDTH_MAX))),
            None => (digits, None),
        };
        let width = width.parse().unwrap_or(0usize).min(WIDTH_MAX);
        let Some(letter) = letter else {
            rest = "";
            continue;
        };
        rest = &rest[end + 1..];
        let mut number = |value: Option<String>| -> i64 {
            let value = value.unwrap_or_default();
            if let Some(c) = value.strip_prefix(['\'', '"']) {
                return c.chars().next().map_or(0, |c| i64::from(u32::from(c)));
            }
            let text = value.trim();
            let parsed = match text.strip_prefix("0x") {
                Some(digits) => i64::from_str_radix(digits, 16).ok(),
                None if text.is_empty() => Some(0),
                None => text.parse().ok(),
            };
            if parsed.is_none() {
                wrong = Some(value);
            }
            parsed.unwrap_or(0)
        };
        let text: Vec<u8> = match letter {
            's' => {
                let value = next().unwrap_or_default();
                let length = precision.unwrap_or(usize::MAX);
                value.chars().take(length).collect::<String>().into_bytes()
            }
            'b' => {
                let (text, goes_on) = unescaped(&next().unwrap_or_default(), true);
                if !goes_on {
                    out.extend(text);
                    return (out, false, wrong);
                }
                text
            }
            'c' => next().and_then(|value| value.chars().next()).map(String::from).unwrap_or_default().into_bytes(),
            'd' | 'i' | 'u' => {
                let value = number(next());
                let sign = if plus && value >= 0 { "+" } else { "" };
                format!("{sign}{value}").into_bytes()
            }
            'x' => format!("{:x}", number(next())).into_bytes(),
            'X' => format!("{:X}", number(next())).into_bytes(),
            'o' => format!("{:o}", number(next())).into_bytes(),
            'f' | 'F' | 'g' | 'e' => {
                let value: f64 = next().unwrap_or_default().trim().parse().unwrap_or(0.0);
                format!("{value:.*}", precision.unwrap_or(6).min(64)).into_bytes()
            }
            _ => Vec::new(),
        };
        let shown = String::from_utf8_lossy(&text).chars().count();
        let fill = width.saturating_sub(shown);
        match (left, zeros && letter != 's') {
            (true, _) => {
                out.extend(text);
                out.extend(std::iter::repeat_n(b' ', fill));
            }
            (false, true) => {
                let signed = usize::from(text.first().is_some_and(|byte| matches!(byte, b'-' | b'+')));
                out.extend(&text[..signed]);
                out.extend(std::iter::repeat_n(b'0', fill));
                out.extend(&text[signed..]);
            }
            (false, false) => {
                out.extend(std::iter::repeat_n(b' ', fill));
                out.extend(text);
            }
        }
    }
    let (text, goes_on) = unescaped(rest, false);
    out.extend(text);
    (out, goes_on, wrong)
}

pub async fn seq(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let (separator, words) = match words {
        [option, separator, rest @ ..] if option == "-s" => (separator.clone(), rest),
        [option, rest @ ..] if option.starts_with("-s") => (option[2..].to_owned(), rest),
        words => ("\n".to_owned(), words),
    };
    let words: Vec<&String> = words.iter().filter(|word| *word != "-w").collect();
    let numbers: Option<Vec<i64>> = words.iter().map(|word| word.parse().ok()).collect();
    let (first, by, last) = match numbers.as_deref() {
        Some([last]) => (1, 1, *last),
        Some([first, last]) => (*first, 1, *last),
        Some([first, by, last]) if *by != 0 => (*first, *by, *last),
        _ => return wrong(shell, "seq", "invalid number").await,
    };
    let (mut number, mut is_first) = (Some(first), true);
    while let Some(value) = number.filter(|number| if by > 0 { *number <= last } else { *number >= last }) {
        let text = if is_first { value.to_string() } else { format!("{separator}{value}") };
        shell.print(&text).await?;
        (number, is_first) = (value.checked_add(by), false);
    }
    if !is_first {
        shell.print("\n").await?;
    }
    Ok(0)
}

pub async fn yes(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, "yes", words, "", "");
    let text = if given.rest.is_empty() { "y\n".to_owned() } else { format!("{}\n", given.rest.join(" ")) };
    loop {
        shell.print(&text).await?;
    }
}
