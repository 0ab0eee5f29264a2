//! Indexes of an indexed job, as text: `1,3-5,7`.

use holdfast_value::Value;

/// The number of indexes that the text lists. The error is the fault of a malformed text.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    if text.is_empty() {
        return Ok(0);
    }
    for part in text.split(',') {
        let (first, end) = interval(part, completions)?;
        if let Some(previous) = last.filter(|previous| *previous >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The first index that both texts contain. Unreadable parts are skipped; validation of each text reports them.
pub(super) fn common(one: &str, other: &str, completions: i64) -> Option<i64> {
    let parts = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (one, other) = (parts(one), parts(other));
    let (mut at, mut beside) = (0, 0);
    while let (Some((first, end)), Some((other_first, other_end))) = (one.get(at), other.get(beside)) {
        if first <= other_end && other_first <= end {
            return Some(*first.max(other_first));
        }
        if first <= other_first {
            at += 1;
        } else {
            beside += 1;
        }
    }
    None
}

fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let ends: Vec<&str> = part.split('-').collect();
    let index = |text: &str| {
        let quoted = Value::from(text);
        let number: i32 = text.parse().map_err(|_| format!("cannot convert string to integer for index: {quoted}"))?;
        if i64::from(number) >= completions {
            return Err(format!("too large index: {quoted}"));
        }
        Ok(i64::from(number))
    };
    match ends[..] {
        [only] => index(only).map(|index| (index, index)),
        [first, last] => {
            let (first, last) = (index(first)?, index(last)?);
            if first >= last {
                return Err(format!("non-increasing order, previous: {first}, current: {last}"));
            }
            Ok((first, last))
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by \
             '-'",
            Value::from(part)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_indexes() {
        let rows: &[(&str, Result<i64, &str>)] = &[
            ("", Ok(0)),
            ("0", Ok(1)),
            ("0,2-4,9", Ok(5)),
            ("10", Err("too large index: \"10\"")),
            ("1-10", Err("too large index: \"10\"")),
            ("3,3", Err("non-increasing order, previous: 3, current: 3")),
            ("3-2", Err("non-increasing order, previous: 3, current: 2")),
            ("a", Err("cannot convert string to integer for index: \"a\"")),
            ("1,", Err("cannot convert string to integer for index: \"\"")),
            ("1-2-3", Err("the fragment \"1-2-3\" violates the requirement that an index interval can have at most")),
        ];
        for (text, expected) in rows {
            match (count(text, 10), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, *expected, "{text}"),
                (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{text}: {found}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        for (one, other, expected) in
            [("0,2-4", "1,5-6", None), ("0,2-6", "1,5-7", Some(5)), ("3", "3", Some(3)), ("", "1", None)]
        {
            assert_eq!(common(one, other, 10), expected, "{one} and {other}");
        }
    }
}
