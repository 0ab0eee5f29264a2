//! Tests which configuration files of an external provider are valid, and what they mean.

use holdfast_cloud_controller::external::{Configuration, ProviderAddress};
use std::time::Duration;

#[test]
fn endpoints_are_read_or_refused_with_their_fields() {
    let read = |text: &str| Configuration::parse(text);
    let unix = read("endpoint: unix:///run/cloud.sock").expect("a socket");
    assert_eq!(
        unix,
        Configuration { endpoint: ProviderAddress::Unix("/run/cloud.sock".into()), deadline: Duration::from_secs(30) }
    );
    assert!(read("{endpoint: 'http://127.0.0.1:7', deadline: 500ms}").is_ok());
    assert!(read("{endpoint: 'https://cloud:7', caFile: a, certFile: b, keyFile: c, serverName: d}").is_ok());
    for (text, parts) in [
        ("{}", &["endpoint: Required value"][..]),
        ("endpoint: http://cloud.example.com:7", &["endpoint: Invalid value", "for this machine alone"]),
        ("endpoint: https://cloud:7", &["caFile: Required value"]),
        ("{endpoint: 'https://cloud:7', caFile: a, certFile: b}", &["keyFile: Required value"]),
        ("{endpoint: 'unix:///a', caFile: a}", &["caFile: certificates are for endpoints with https"]),
        ("{endpoint: 'unix:///a', deadline: 1h, colour: red}", &["deadline", "unknown field \"colour\""]),
        ("[]", &["must be an object"]),
    ] {
        let faults = read(text).expect_err(text).join("\n");
        assert!(parts.iter().all(|part| faults.contains(part)), "{text}: {faults}");
    }
}
