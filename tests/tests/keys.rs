//! Keys and certificates in all common formats, made by openssl(1): PKCS #1, SEC 1 and PKCS #8, and client certificates
//! of version 1.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_tests::envtest::Program;
use holdfast_tests::server::{fails, holdfast, succeeds};
use holdfast_tests::{Folder, Server};
use serde_json::{Value, json};
use std::process::{Command, Output};

fn made() -> Folder {
    let folder = Folder::new();
    let script = holdfast_tests::folder().join("fixtures/keys.sh");
    let output = Command::new("bash").arg(script).current_dir(folder.path()).output().expect("run bash");
    let log = std::fs::read_to_string(folder.join("openssl.log")).unwrap_or_default();
    assert!(output.status.success(), "{log}");
    folder
}

/// Runs curl, a client that is not written in Rust, in the folder of keys.
fn curl(folder: &Folder, arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.current_dir(folder.path()).args(["-sS", "--http1.1", "--max-time", "30"]).args(arguments);
    command.output().expect("run curl")
}

fn read(folder: &Folder, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).expect(name)
}

#[test]
fn servers_serve_with_keys_of_every_form() {
    let keys = made();
    let names = ["p256-old", "p256-pkcs8", "p384-old", "p384-pkcs8", "rsa-old", "rsa-pkcs8"];
    let pair = |certificate: &str, key: &str, name: &str| {
        let path = |file: &str| keys.join(file).display().to_string();
        format!("--tls-sni-cert-key={},{}:{name}", path(certificate), path(key))
    };
    let mut options: Vec<String> = names
        .iter()
        .map(|name| pair(&format!("serving-{name}.crt"), &name.replace('-', "."), &format!("{name}.test")))
        .collect();
    options.push(pair("serving-version-one.crt", "rsa.old", "version-one.test"));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let data = Folder::new();
    let server = Server::start(data.path(), &options);
    let port = server.url().rsplit(':').next().expect("a port");
    for name in names {
        let (resolve, url) = (format!("{name}.test:{port}:127.0.0.1"), format!("https://{name}.test:{port}/healthz"));
        let authority = format!("serving-{name}.crt");
        for tls in ["1.2", "1.3"] {
            let answer = curl(&keys, &["--resolve", &resolve, "--cacert", &authority, "--tls-max", tls, &url]);
            assert_eq!(succeeds(answer), "ok", "{name}");
        }
    }
    let (resolve, url) =
        (format!("version-one.test:{port}:127.0.0.1"), format!("https://version-one.test:{port}/healthz"));
    assert_eq!(succeeds(curl(&keys, &["--resolve", &resolve, "-k", &url])), "ok");
    server.stop();

    let refused = |key: &str| {
        let options = [pair("serving-p256-old.crt", key, "x.test")];
        let refused = Server::try_start(data.path(), &options.each_ref().map(String::as_str)).err().expect("a refusal");
        refused.stderr
    };
    assert!(refused("p384.old").contains("the key is not that of the certificate"));
    assert!(refused("p256.encrypted").contains("the private key is encrypted"));
    assert!(refused("serving-rsa-old.crt").contains("there is no private key in PEM"));
}

/// A client certificate's signer and usages decide whether a server accepts it, and its version does not. The server
/// trusts the authorities in `clients.crt`.
#[test]
fn clients_show_certificates_of_every_version() {
    let keys = made();
    let data = Folder::new();
    let authorities = format!("--client-ca-file={}", keys.join("clients.crt").display());
    let server = Server::start(data.path(), &[&authorities]);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let url = format!("{}/apis/authentication.k8s.io/v1/selfsubjectreviews", server.url());
    let ask = |name: &str, key: &str, tls: &str| -> Value {
        let certificate = format!("{name}.crt");
        let arguments = ["-k", "--tls-max", tls, "--cert", &certificate, "--key", key, "-d", &review];
        let answer = curl(&keys, &[&arguments[..], &["-H", "content-type: application/json", &url]].concat());
        serde_json::from_str(&succeeds(answer)).expect("JSON")
    };
    for (name, key, trusted) in [
        ("v1-p256", "p256.old", true),
        ("v1-p256", "p256.pkcs8", true),
        ("v1-p384", "p384.old", true),
        ("v1-rsa", "rsa.old", true),
        ("v1-of-old", "p256.old", true),
        ("v1-by-good", "p256.old", true),
        ("v3-client", "p256.old", true),
        ("v3-plain", "p256.old", true),
        ("v3-server", "p256.old", false),
        ("v1-of-impostor", "p256.old", false),
        ("v1-of-names", "p256.old", false),
        ("v1-of-servers", "p256.old", false),
        ("v1-by-leaf", "p256.old", false),
        ("v1-by-unsaid", "p256.old", false),
        ("v1-by-signer-of-lists", "p256.old", false),
        ("v1-by-for-servers", "p256.old", false),
        ("v1-by-version-one", "p256.old", false),
        ("v1-by-too-deep", "p256.old", false),
    ] {
        for tls in ["1.2", "1.3"] {
            let answer = ask(name, key, tls);
            match trusted {
                true => {
                    let user = &answer["status"]["userInfo"];
                    assert_eq!(user["username"], name, "{answer}");
                    assert_eq!(user["groups"], json!(["devs", "system:authenticated"]), "{answer}");
                }
                false => assert_eq!(answer["code"], 401, "{name}: {answer}"),
            }
        }
    }
    server.stop();
}

#[test]
fn our_own_commands_use_keys_of_every_form() {
    let keys = made();
    let data = Folder::new();
    let authorities = format!("--client-ca-file={}", keys.join("clients.crt").display());
    let server = Server::start(data.path(), &[&authorities, "--authorization-mode=AlwaysAllow"]);
    for form in ["p256.old", "p256.pkcs8"] {
        let kubeconfig = keys.join(&format!("{form}.kubeconfig"));
        let user = json!({"client-certificate": keys.join("v3-client.crt"), "client-key": keys.join(form)});
        let cluster = json!({"server": server.url(), "certificate-authority": data.join("pki/ca.crt")});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&kubeconfig, config.to_string()).expect("written");
        let kubeconfig = kubeconfig.to_str().expect("UTF-8");
        let told = succeeds(holdfast(["history", "namespaces", "default", "--kubeconfig", kubeconfig]));
        assert!(told.contains("created"), "{form}: {told}");
    }
    server.stop();
}

/// A given authority signs the certificates that `holdfast up` creates.
#[test]
fn authorities_have_keys_of_every_form() {
    let keys = made();
    for form in ["p256.old", "p384.old", "rsa.old", "rsa.pkcs8"] {
        let data = Folder::new();
        Server::start(data.path(), &[]).stop();
        let pki = data.join("pki");
        let make = format!(
            "openssl req -x509 -new -key {} -days 9 -subj /CN=ours -out ca.crt 2>/dev/null && cp {0} ca.key && \
             rm server.crt admin.crt",
            keys.join(form).display()
        );
        let made = Command::new("sh").args(["-c", &make]).current_dir(&pki).status().expect("run sh");
        assert!(made.success());
        let server = Server::start(data.path(), &[]);
        let url = format!("{}/api/v1/namespaces/default", server.url());
        let signed = ["--cacert", "ca.crt", "--cert", "admin.crt", "--key", "admin.key", &url];
        let answer = Command::new("curl").arg("-sS").args(signed).current_dir(&pki).output().expect("run curl");
        let answer: Value = serde_json::from_str(&succeeds(answer)).expect("JSON");
        assert_eq!(answer["kind"], "Namespace", "{form}");
        server.stop();
    }
}

/// Tokens are signed with a key in any format, and verified with its public key, its certificate, or itself.
#[test]
fn tokens_are_signed_and_verified_with_keys_of_every_form() {
    let keys = made();
    for (signing, verifying) in [
        ("p256.old", "p256.public"),
        ("p256.pkcs8", "p256.old"),
        ("p384.old", "serving-p384-old.crt"),
        ("p384.pkcs8", "p384.old"),
        ("rsa.old", "rsa.public"),
        ("rsa.pkcs8", "rsa.public-old"),
        ("rsa.pkcs8", "rsa.old"),
        ("rsa.old", "v1-rsa.crt"),
    ] {
        let data = Folder::new();
        let path = |name: &str| keys.join(name).display().to_string();
        let sign = format!("--service-account-signing-key-file={}", path(signing));
        // Another server on the same objects, with the verifying key only.
        let server = Server::start(data.path(), &[&sign]);
        let config = server.kubeconfig().to_owned();
        let kubectl = |arguments: &[&str]| {
            succeeds(
                Command::new("kubectl").arg("--kubeconfig").arg(&config).args(arguments).output().expect("kubectl"),
            )
        };
        kubectl(&["create", "serviceaccount", "robot"]);
        let token = kubectl(&["create", "token", "robot"]);
        server.stop();
        std::fs::write(keys.join("unrelated.key"), read(&keys, "old.key")).expect("written");
        let unrelated = format!("--service-account-signing-key-file={}", path("unrelated.key"));
        let review = |options: &[&str]| {
            let server = Server::start(data.path(), options);
            let url = format!("{}/apis/authentication.k8s.io/v1/selfsubjectreviews", server.url());
            let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
            let bearer = format!("authorization: Bearer {}", token.trim());
            let json = "content-type: application/json";
            let answer = curl(&keys, &["-k", "-H", &bearer, "-H", json, "-d", &body, &url]);
            server.stop();
            serde_json::from_str::<Value>(&succeeds(answer)).expect("JSON")
        };
        let verify = format!("--service-account-key-file={}", path(verifying));
        let answer = review(&[&unrelated, &verify]);
        let user = &answer["status"]["userInfo"]["username"];
        assert_eq!(user, "system:serviceaccount:default:robot", "{signing}, {verifying}: {answer}");
        assert_eq!(review(&[&unrelated])["code"], 401, "{signing}");
    }
    let refused = |option: &str, name: &str| {
        let option = format!("--service-account-{option}={}", keys.join(name).display());
        let arguments = ["apiserver", "--data-dir", "data", "--cert-dir", "certs", "--secure-port=0", &option];
        let mut command = Command::new(holdfast_tests::server::binary());
        command.current_dir(keys.path()).args(arguments).output().expect("run holdfast")
    };
    fails(refused("signing-key-file", "p256.encrypted"), &["service account keys", "encrypted"]);
    fails(refused("signing-key-file", "v1-rsa.crt"), &["service account keys", "no private key"]);
    fails(refused("key-file", "v3-plain.ext"), &["service account keys"]);
}

/// Controllers sign certificates, and the tokens in Secrets of service accounts, with keys in any format. The server
/// accepts such a key for its front proxy certificate, too.
#[test]
fn controllers_sign_with_keys_of_every_form() {
    let keys = made();
    for form in ["p256.old", "p256.pkcs8", "p384.old", "rsa.old", "rsa.pkcs8"] {
        let data = Folder::new();
        let make = format!(
            "openssl req -x509 -new -key {form} -days 9 -subj /CN=signer -out signer.crt && \
             openssl req -new -key p256.pkcs8 -subj /O=devs/CN=jane -out jane.csr"
        );
        succeeds(Command::new("sh").args(["-c", &make]).current_dir(keys.path()).output().expect("run sh"));
        let path = |name: &str| keys.join(name).display().to_string();
        let options = [
            format!("--service-account-signing-key-file={}", path(form)),
            format!("--proxy-client-cert-file={}", path("signer.crt")),
            format!("--proxy-client-key-file={}", path(form)),
        ];
        let server = Server::start(data.path(), &options.each_ref().map(String::as_str));
        let manager = Program::start(
            holdfast_tests::server::binary(),
            &[
                "controller-manager".into(),
                "--controllers=certificatesigningrequest-signing-controller,serviceaccount-token-controller".into(),
                "--leader-elect=false".into(),
                format!("--kubeconfig={}", server.kubeconfig().display()),
                format!("--cluster-signing-cert-file={}", path("signer.crt")),
                format!("--cluster-signing-key-file={}", path(form)),
                format!("--service-account-private-key-file={}", path(form)),
                "--secure-port=0".into(),
            ],
        );
        let kubectl = |arguments: &[&str], input: &Value| {
            let file = keys.join("input.json");
            std::fs::write(&file, input.to_string()).expect("written");
            let input = std::fs::File::open(file).expect("opened");
            let mut command = Command::new("kubectl");
            succeeds(
                command
                    .arg("--kubeconfig")
                    .arg(server.kubeconfig())
                    .args(arguments)
                    .stdin(input)
                    .output()
                    .expect("kubectl"),
            )
        };
        let create = ["create", "-f", "-"];
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "jane"},
            "spec": {
                "request": STANDARD.encode(read(&keys, "jane.csr")),
                "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
            },
        });
        kubectl(&create, &request);
        kubectl(&["certificate", "approve", "jane"], &Value::Null);
        kubectl(&["create", "serviceaccount", "robot"], &Value::Null);
        kubectl(
            &create,
            &json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                "metadata": {"name": "robot", "annotations": {"kubernetes.io/service-account.name": "robot"}},
            }),
        );
        let found = |object: &str, field: &str| {
            let wait = format!("--for=jsonpath={{{field}}}");
            kubectl(&["wait", object, &wait, "--timeout=30s"], &Value::Null);
            let output = format!("-o=jsonpath={{{field}}}");
            let text = kubectl(&["get", object, &output], &Value::Null);
            STANDARD.decode(text.trim()).expect("base64")
        };
        std::fs::write(keys.join("jane.crt"), found("csr/jane", ".status.certificate")).expect("written");
        let verify = ["verify", "-CAfile", "signer.crt", "jane.crt"];
        let verified = Command::new("openssl").args(verify).current_dir(keys.path()).output().expect("run openssl");
        assert!(succeeds(verified).contains("OK"), "{form}");
        let token = String::from_utf8(found("secret/robot", ".data.token")).expect("UTF-8");
        let url = format!("{}/api", server.url());
        let answer = curl(&keys, &["-k", "-H", &format!("authorization: Bearer {token}"), &url]);
        let answer: Value = serde_json::from_str(&succeeds(answer)).expect("JSON");
        assert_eq!(answer["kind"], "APIVersions", "{form}: {answer}");
        drop(manager);
        server.stop();
    }
}
