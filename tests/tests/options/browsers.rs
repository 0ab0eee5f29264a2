//! Tests which pages a browser allows to read the API's answers.

use super::{MAPS, start};
use holdfast_tests::Folder;
use holdfast_tests::server::succeeds;
use holdfast_tests::wire::HttpClient;
use http::Method;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

#[tokio::test]
async fn browsers_are_told_who_may_read() {
    let options =
        ["--cors-allowed-origins=^https://.*\\.example\\.com$", "--strict-transport-security-directives=max-age=9"];
    let (_folder, server) = start(&options);
    let (admin, anonymous) = (HttpClient::admin(&server), HttpClient::anonymous(&server));
    let origin = |origin: &'static str| [("origin", origin)];
    let allowed = origin("https://a.example.com");
    let preflight = anonymous.send(Method::OPTIONS, MAPS, &allowed, "").await.expect(204);
    assert_eq!(preflight.header("access-control-allow-origin"), "https://a.example.com");
    assert_eq!(preflight.header("access-control-allow-methods"), "POST, GET, OPTIONS, PUT, DELETE, PATCH");
    assert!(!preflight.header("audit-id").is_empty());
    let read = admin.send(Method::GET, MAPS, &allowed, "").await.expect(200);
    assert_eq!(read.header("access-control-expose-headers"), "Date");
    assert_eq!(read.header("strict-transport-security"), "max-age=9");
    let other = origin("https://example.org");
    let read = admin.send(Method::GET, MAPS, &other, "").await.expect(200);
    assert_eq!(read.header("access-control-allow-origin"), "");
    anonymous.send(Method::OPTIONS, MAPS, &other, "").await.expect(403);
    server.stop();
}

/// A real browser sends a preflight request before it sends a token, and hides the answer from pages of other origins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_allowed_origins_read_in_a_browser() {
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if system.contains("\nID=ubuntu\n") {
        println!("left out: scripts/setup.sh finds no browser on Ubuntu");
        return;
    }
    let (site, folder) = (TcpListener::bind("127.0.0.1:0").expect("a port"), Folder::new());
    let port = site.local_addr().expect("an address").port();
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, "tok,admin,admin,\"system:masters\"\n").expect("write the tokens");
    let (tokens, origins) = (
        format!("--token-auth-file={}", tokens.display()),
        format!("--cors-allowed-origins=^http://127\\.0\\.0\\.1:{port}$"),
    );
    let (_data, server) = start(&[&tokens, &origins]);
    let page = format!(
        "<!doctype html><body>nothing yet</body><script>fetch('{}{MAPS}', {{headers: {{authorization: 'Bearer tok'}}}})\
         .then(answer => answer.json()).then(read => 'read a ' + read.kind, error => 'failed: ' + error)\
         .then(text => document.body.textContent = text)</script>",
        server.url()
    );
    std::thread::spawn(move || serve_page(&site, &page));
    assert!(seen_in_browser(&folder, &format!("http://127.0.0.1:{port}/")).contains("read a ConfigMapList"));
    assert!(seen_in_browser(&folder, &format!("http://localhost:{port}/")).contains("failed: TypeError"));
    server.stop();
}

/// Answers every request to the site with the page.
fn serve_page(site: &TcpListener, page: &str) {
    for stream in site.incoming() {
        let Ok(mut stream) = stream else { continue };
        // The head of a browser's request fits into the buffer.
        _ = stream.read(&mut [0; 4096]);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n", page.len());
        _ = stream.write_all(format!("{head}connection: close\r\n\r\n{page}").as_bytes());
    }
}

/// A page's content after its scripts have run, in a browser that accepts the server's certificate.
fn seen_in_browser(folder: &Folder, url: &str) -> String {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
        .args(["--ignore-certificate-errors", "--virtual-time-budget=20000", "--dump-dom", &profile, url])
        .output()
        .expect("run chromium");
    succeeds(output)
}
