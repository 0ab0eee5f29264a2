//! Tests with the examples of RFC 7541, appendix C, and with random fields.

use super::*;
use http::{HeaderMap, StatusCode};
use proptest::prelude::*;
use std::borrow::Cow;

/// Fields as text, one `name: value` on each line.
#[derive(Default)]
struct Lines(Vec<String>);

impl Sink for Lines {
    fn take(&mut self, field: Cow<'_, Field>) {
        let name = match &field.name {
            Name::Pseudo(Pseudo::Method) => ":method",
            Name::Pseudo(Pseudo::Scheme) => ":scheme",
            Name::Pseudo(Pseudo::Authority) => ":authority",
            Name::Pseudo(Pseudo::Path) => ":path",
            Name::Pseudo(Pseudo::Status) => ":status",
            Name::Header(name) => name.as_str(),
            Name::Malformed => "?",
        };
        let value = match &field.value {
            Value::Plain(text) => text,
            Value::Header(value) => value.as_bytes(),
            Value::Malformed => b"?",
        };
        assert!(name == "?" || value == b"?" || field.bytes as usize == name.len() + value.len() + FIELD_BYTES);
        self.0.push(format!("{name}: {}", String::from_utf8_lossy(value)));
    }
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, Broken> {
    let mut lines = Lines::default();
    decoder.decode(block, &mut lines).map(|()| lines.0)
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Decodes the blocks of one connection. Each block is given with its fields, and with the size of the table after the
/// block.
fn check(bytes_max: usize, blocks: &[(&str, &[&str], usize)]) {
    let mut decoder = Decoder::new(bytes_max);
    for (block, expected, bytes) in blocks {
        assert_eq!(decode(&mut decoder, &unhex(block)).as_deref(), Ok(&expected.map_strings()[..]), "{block}");
        assert_eq!(decoder.table_bytes(), *bytes, "{block}");
    }
}

trait MapStrings {
    fn map_strings(&self) -> Vec<String>;
}

impl MapStrings for &[&str] {
    fn map_strings(&self) -> Vec<String> {
        self.iter().map(|line| (*line).to_owned()).collect()
    }
}

#[test]
fn literals() {
    check(
        4096,
        &[("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", &["custom-key: custom-header"], 55)],
    );
    check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"], 0)]);
    check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &["password: secret"], 0)]);
    check(4096, &[("82", &[":method: GET"], 0)]);
}

#[test]
fn requests() {
    let first = &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
    let second =
        &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"];
    let third = &[
        ":method: GET",
        ":scheme: https",
        ":path: /index.html",
        ":authority: www.example.com",
        "custom-key: custom-value",
    ];
    check(
        4096,
        &[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", first, 57),
            ("8286 84be 5808 6e6f 2d63 6163 6865", second, 110),
            ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", third, 164),
        ],
    );
    check(
        4096,
        &[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", first, 57),
            ("8286 84be 5886 a8eb 1064 9cbf", second, 110),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", third, 164),
        ],
    );
}

#[test]
fn answers_that_push_each_other_out() {
    let (date, later) = ("date: Mon, 21 Oct 2013 20:13:21 GMT", "date: Mon, 21 Oct 2013 20:13:22 GMT");
    let location = "location: https://www.example.com";
    let cookie = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    let first = &[":status: 302", "cache-control: private", date, location];
    let second = &[":status: 307", "cache-control: private", date, location];
    let third = &[":status: 200", "cache-control: private", later, location, "content-encoding: gzip", cookie];
    check(
        256,
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 \
                 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                first,
                222,
            ),
            ("4803 3330 37c1 c0bf", second, 222),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 \
                 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 \
                 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
                third,
                215,
            ),
        ],
    );
    check(
        256,
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
                 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                first,
                222,
            ),
            ("4883 640e ffc1 c0bf", second, 222),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
                 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                third,
                215,
            ),
        ],
    );
}

#[test]
fn blocks_that_are_broken() {
    let mut decoder = Decoder::new(100);
    for block in [
        "80",             // index 0
        "be",             // an index beyond the table
        "ff80808000",     // one far beyond it
        "7f",             // a truncated integer
        "4001",           // a truncated name
        "400161",         // no value
        "40016105616263", // a truncated value
        "4081ff0161",     // eight bits of padding
        "3f46",           // a table of 101 bytes
        "8220",           // a table size after a field
        "ffffffffffffffff7f",
    ] {
        assert!(decode(&mut decoder, &unhex(block)).is_err(), "{block}");
    }
    assert_eq!(decode(&mut decoder, &unhex("203f4582")), Ok(vec![":method: GET".to_owned()]), "two sizes first");
}

#[test]
fn fields_that_no_request_may_have_are_kept_as_such() {
    let mut decoder = Decoder::new(4096);
    // `A: b`, `a: \n`, `: x`, `:a: b`, `a:  b`, `a: b `.
    let block =
        unhex("40 01 41 01 62  40 01 61 01 0a  40 00 01 78  40 02 3a 61 01 62  40 01 61 02 20 62  40 01 61 02 62 20");
    let lines = decode(&mut decoder, &block).unwrap();
    assert_eq!(lines, ["?: ?", "a: ?", "?: ?", "?: ?", "a: ?", "a: ?"]);
    assert_eq!(decoder.table_bytes(), 34 + 34 + 33 + 35 + 35 + 35);
    // The name of a malformed field in the table, with a valid value. Only the value was malformed, so the new field is
    // valid.
    assert_eq!(decode(&mut decoder, &unhex("7e 01 62  7e 01 62")).unwrap(), ["a: b", "a: b"]);
}

#[test]
fn what_repeats_is_kept_and_what_is_secret_never() {
    let mut encoder = Encoder::default();
    let mut decoder = Decoder::new(4096);
    let mut secret = HeaderValue::from_static("secret");
    secret.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("audit-id", secret);
    headers.insert("date", HeaderValue::from_static("Mon, 21 Oct 2013 20:13:21 GMT"));
    headers.insert("connection", HeaderValue::from_static("close"));
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        encoder.status(StatusCode::CREATED, &mut block);
        assert!(encoder.headers(&headers, &mut block).date);
        encoder.length(1234567890, &mut block);
        assert!(block.windows(10).any(|bytes| bytes == b"\x10\x08audit-id"), "{block:?}");
        sizes.push(block.len());
        let lines = decode(&mut decoder, &block).unwrap();
        assert_eq!(
            lines,
            [
                ":status: 201",
                "content-type: application/json",
                "audit-id: secret",
                "date: Mon, 21 Oct 2013 20:13:21 GMT",
                "content-length: 1234567890",
            ]
        );
    }
    let kept = ":status201".len() + "content-typeapplication/json".len() + 2 * FIELD_BYTES;
    assert_eq!(decoder.table_bytes(), kept);
    // In the third answer and later answers, status and content type take one byte each.
    assert_eq!(sizes[0] - sizes[2], 5 + 19 - 2);
    assert_eq!(sizes[2], sizes[3]);
}

/// A header's name and value, and whether it is secret.
fn header() -> impl Strategy<Value = (String, String, bool)> {
    let name =
        prop_oneof!["[a-z]{1,3}", Just("content-type".to_owned()), Just("x-long".repeat(30)), Just("etag".to_owned())];
    let value = prop_oneof!["[!-~]([ -~]{0,6}[!-~])?", Just(String::new()), "[!-~]{200,300}"];
    (name, value, prop::bool::weighted(0.1))
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        lists in prop::collection::vec((prop::collection::vec(header(), 0..12), prop::option::of(0..5000usize), 200..600u16), 1..20)
    ) {
        let mut encoder = Encoder::default();
        let mut decoder = Decoder::new(4096);
        for (list, size, status) in lists {
            if let Some(size) = size {
                encoder.resize(size);
            }
            let mut headers = HeaderMap::new();
            for (name, value, is_secret) in list {
                let mut value = HeaderValue::from_str(&value).unwrap();
                value.set_sensitive(is_secret);
                headers.append(HeaderName::from_lowercase(name.as_bytes()).unwrap(), value);
            }
            headers.remove("te");
            let mut block = Vec::new();
            encoder.begin(&mut block);
            encoder.status(StatusCode::from_u16(status).unwrap(), &mut block);
            encoder.headers(&headers, &mut block);
            let mut expected = vec![format!(":status: {status}")];
            expected.extend(headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())));
            prop_assert_eq!(decode(&mut decoder, &block), Ok(expected));
            prop_assert!(decoder.table_bytes() <= size.unwrap_or(4096).min(4096));
        }
    }

    #[test]
    fn noise_is_decoded_or_refused(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..5)) {
        let mut decoder = Decoder::new(200);
        for block in blocks {
            let read = decode(&mut decoder, &block);
            prop_assert!(decoder.table_bytes() <= 200);
            if read.is_err() {
                break;
            }
        }
    }
}
