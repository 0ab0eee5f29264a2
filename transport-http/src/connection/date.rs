//! The `date` header, formatted once a second.

use http::HeaderValue;
use jiff::Timestamp;
use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

thread_local! {
    static NOW: RefCell<(u64, HeaderValue)> = const {
        RefCell::new((0, HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT")))
    };
}

/// The current date as HTTP formats it.
pub fn now() -> HeaderValue {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    NOW.with_borrow_mut(|(known, value)| {
        if *known != second {
            (*known, *value) = (second, written(second));
        }
        value.clone()
    })
}

fn written(second: u64) -> HeaderValue {
    let time = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok()).unwrap_or_default();
    let text = time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_http_has_them() {
        assert_eq!(written(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(written(u64::MAX), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(now(), now());
    }
}
