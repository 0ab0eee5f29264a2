//! How long requests and the server's end take.

use super::shown::value;
use super::{MAPS, start};
use holdfast_tests::eventually;
use holdfast_tests::wire::HttpClient;
use http::Method;
use std::time::Duration;

#[tokio::test]
async fn the_end_comes_in_steps() {
    let options =
        ["--shutdown-delay-duration=1s", "--shutdown-send-retry-after", "--shutdown-watch-termination-grace-period=2s"];
    let (_folder, mut server) = start(&options);
    let admin = HttpClient::admin(&server);
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(admin.open(Method::GET, &format!("{MAPS}?watch=1"), &[], Default::default()).await.unwrap());
    }
    server.signal("TERM");
    let unready = eventually(Duration::from_secs(5), || async {
        let ready = admin.get("/readyz").await;
        if ready.code == 500 { Ok(ready.text()) } else { Err("it is still ready") }
    })
    .await;
    assert!(unready.contains("[-]shutdown failed"), "{unready}");
    admin.get(MAPS).await.expect(200);
    let refused = eventually(Duration::from_secs(5), || async {
        let answer = admin.get(MAPS).await;
        if answer.code == 429 { Ok(answer) } else { Err("it still answers") }
    })
    .await;
    assert_eq!(refused.header("retry-after"), "5");
    assert!(refused.text().contains("shutting down, please try again later"), "{}", refused.text());
    admin.get("/livez").await.expect(200);
    assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
    drop(watches);
}

#[tokio::test]
async fn requests_end_when_their_time_is_over() {
    let (_folder, server) = start(&["--request-timeout=3s", "--min-request-timeout=1"]);
    let admin = HttpClient::admin(&server);
    admin.get(&format!("{MAPS}?timeout=1s")).await.expect(200);
    let refused = admin.get(&format!("{MAPS}?timeout=1")).await.refused(400, "BadRequest");
    let expected = "invalid timeout specified in the request URL - time: missing unit in duration \"1\"";
    assert_eq!(refused["message"], expected);
    // The list waits for a version that does not exist yet, until its timeout.
    let late = admin.get(&format!("{MAPS}?resourceVersion=999999&timeout=100ms")).await;
    let status = late.refused(504, "Timeout");
    assert_eq!(status["message"], "Timeout: request did not complete within the allotted timeout");
    // This server ends a watch without a timeout after one to two seconds.
    let watch = admin.get(&format!("{MAPS}?watch=1")).await.expect(200);
    assert!(watch.text().contains("kube-root-ca.crt") || watch.text().is_empty(), "{}", watch.text());
    let metrics = admin.get("/metrics").await.expect(200).text();
    assert!(value(&metrics, "apiserver_request_terminations_total{component=\"apiserver\",code=\"504\"}") >= 1.0);
    server.stop();
}
