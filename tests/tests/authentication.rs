//! Tokens: legacy token Secrets, OIDC issuers by options and by file, and token webhooks. The tests run the real
//! binary.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use holdfast_tests::authority::Authority;
use holdfast_tests::hooks::Hooks;
use holdfast_tests::recorded::Issuer;
use holdfast_tests::server::fails;
use holdfast_tests::webhook::Site;
use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server, eventually, has_reloaded, server};
use http::Method;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const PATIENCE: Duration = Duration::from_secs(20);
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// The user that the server authenticates by a token.
async fn who(wire: &HttpClient, token: &str) -> Result<Value, u16> {
    let answer = wire.clone().with_token(token).post(WHO, &json!({})).await;
    match answer.code {
        201 => Ok(answer.json()["status"]["userInfo"].clone()),
        code => Err(code),
    }
}

/// Signs the tokens of an issuer.
struct Signer {
    pair: EcdsaKeyPair,
}

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Signer { pair: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap() }
    }

    fn keys(&self) -> Value {
        let point = &self.pair.public_key().as_ref()[1..];
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k",
            "x": text(&point[..32]), "y": text(&point[32..])}]})
    }

    fn token(&self, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "ES256", "kid": "k"})), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// An issuer that serves its discovery document and keys.
async fn issuer(authority: &Authority, signer: &Signer) -> Site {
    let keys = signer.keys();
    Site::start(authority, move |site, path, _| match path {
        "/oidc/.well-known/openid-configuration" => {
            Some(json!({"issuer": format!("{site}/oidc"), "jwks_uri": format!("{site}/keys")}))
        }
        "/keys" => Some(keys.clone()),
        _ => None,
    })
    .await
}

fn claims(site: &Site, more: Value) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut claims =
        json!({"iss": format!("{}/oidc", site.url()), "aud": "cl", "exp": now + 600, "sub": "s", "team": "blue"});
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claims
}

/// Waits until the server knows the token's issuer, and returns the token's user.
async fn until_known(wire: &HttpClient, token: &str) -> Value {
    let began = Instant::now();
    loop {
        match who(wire, token).await {
            Ok(user) => return user,
            Err(code) => assert!(began.elapsed() < Duration::from_secs(60), "it is still {code}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn holders_of_bootstrap_tokens_may_join() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &["--enable-bootstrap-token-auth"]);
    let (admin, wire) = (HttpClient::admin(&server), HttpClient::anonymous(&server));
    let secret = |id: &str, more: Value| {
        let mut data =
            json!({"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"});
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token", "stringData": data})
    };
    for (id, more) in [
        ("aaaaa1", json!({})),
        ("aaaaa2", json!({"auth-extra-groups": "system:bootstrappers:w,system:bootstrappers:a"})),
        ("aaaaa3", json!({"auth-extra-groups": "system:masters"})),
        ("aaaaa4", json!({"expiration": "2020-01-01T00:00:00Z"})),
        ("aaaaa5", json!({"usage-bootstrap-authentication": "yes"})),
    ] {
        admin.post(SECRETS, &secret(id, more)).await.expect(201);
    }
    let user = who(&wire, "aaaaa1.0123456789abcdef").await.expect("it is known");
    assert_eq!(
        user,
        json!({"username": "system:bootstrap:aaaaa1", "groups": ["system:bootstrappers", "system:authenticated"]})
    );
    let groups = &who(&wire, "aaaaa2.0123456789abcdef").await.expect("it is known")["groups"];
    let expected = ["system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:w", "system:authenticated"];
    assert_eq!(groups, &json!(expected));
    for token in [
        "aaaaa1.0123456789abcdee",
        "aaaaa3.0123456789abcdef",
        "aaaaa4.0123456789abcdef",
        "aaaaa5.0123456789abcdef",
        "aaaaa6.0123456789abcdef",
    ] {
        assert_eq!(who(&wire, token).await, Err(401), "{token}");
    }
    admin.send(Method::DELETE, &format!("{SECRETS}/bootstrap-token-aaaaa1"), &[], "").await.expect(200);
    assert_eq!(who(&wire, "aaaaa1.0123456789abcdef").await, Err(401), "its Secret is gone");
}

/// The use of tokens from Secrets is recorded, and a token marked as invalid is rejected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_in_secrets_are_told_of() {
    let folder = Folder::new();
    let policy = folder.join("policy.yaml");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
        .expect("written");
    let log = folder.join("audit.log");
    let options = [
        "--controllers=serviceaccount-token-controller".to_owned(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Server::start(&folder.join("data"), &options);
    let admin = HttpClient::admin(&server);
    let (accounts, secrets) = ("/api/v1/namespaces/default/serviceaccounts", "/api/v1/namespaces/default/secrets");
    admin.post(accounts, &json!({"metadata": {"name": "robot"}, "secrets": [{"name": "made"}]})).await.expect(201);
    for name in ["made", "asked"] {
        let metadata = json!({"name": name, "annotations": {"kubernetes.io/service-account.name": "robot"}});
        let secret = json!({"metadata": metadata, "type": "kubernetes.io/service-account-token"});
        admin.post(secrets, &secret).await.expect(201);
    }
    let map = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let since = eventually(PATIENCE, || async { Ok::<_, String>(admin.get(map).await).and_then(found) }).await;
    assert!(since["data"]["since"].as_str().is_some_and(|since| since.len() == 10), "{since}");
    for (name, advice) in [("made", true), ("asked", false)] {
        let path = format!("{secrets}/{name}");
        let token = eventually(PATIENCE, || async {
            admin.get(&path).await.json()["data"]["token"].as_str().map(str::to_owned).ok_or("no token yet")
        })
        .await;
        let token = String::from_utf8(STANDARD.decode(token).expect("base64")).expect("text");
        let wire = HttpClient::anonymous(&server).with_token(&token);
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = wire.post(WHO, &review).await.expect(201);
        assert_eq!(answer.header("warning").contains("instead of auto-generated"), advice, "{name}");
        let marked = |label: &'static str| {
            let (admin, path) = (&admin, &path);
            eventually(PATIENCE, move || async move {
                let secret = admin.get(path).await.json();
                secret["metadata"]["labels"][label].as_str().map(str::to_owned).ok_or("it does not say so yet")
            })
        };
        assert_eq!(marked("kubernetes.io/legacy-token-last-used").await.len(), 10);
        let patch = json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2020-01-01"}}});
        let headers = [("content-type", "application/merge-patch+json")];
        admin.send(Method::PATCH, &path, &headers, patch.to_string()).await.expect(200);
        wire.post(WHO, &review).await.expect(401);
    }
    server.stop();
    let told = std::fs::read_to_string(&log).expect("the audit log");
    for annotation in [
        r#""authentication.k8s.io/legacy-token-autogenerated-secret":"made""#,
        r#""authentication.k8s.io/legacy-token-manual-secret":"asked""#,
        r#""authentication.k8s.io/legacy-token-invalidated":"asked/default""#,
    ] {
        assert!(told.contains(annotation), "{annotation}");
    }
}

fn found(answer: Answer) -> Result<Value, String> {
    if answer.code == 200 { Ok(answer.json()) } else { Err(answer.text()) }
}

/// Clients may send any number of unknown tokens without flooding the token webhook.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_ask_the_webhook_for_tokens_about_few_at_a_time() {
    let (folder, hooks) = (Folder::new(), Hooks::start().await);
    let answer = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "status": {"authenticated": false}});
    hooks.behave("/tokens", json!({"delay": 2, "raw": answer.to_string()}));
    let of = |wanted: &str| hooks.names.iter().find(|(name, _)| *name == wanted).map(|(_, is)| is.clone()).unwrap();
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "h", "cluster": {"server": format!("https://{}/tokens", of("<hook>")),
            "certificate-authority-data": of("<ca>")}}],
        "contexts": [{"name": "c", "context": {"cluster": "h"}}]});
    let config = folder.join("config");
    std::fs::write(&config, kubeconfig.to_string()).unwrap();
    let option = format!("--authentication-token-webhook-config-file={}", config.display());
    let server = Server::start(&folder.join("data"), &["--controllers=-*", &option]);
    let mut all = JoinSet::new();
    for connection in 0..2 {
        let wire = HttpClient::anonymous(&server);
        for token in 0..200 {
            let wire = wire.clone().with_token(&format!("{connection}-{token}"));
            all.spawn(async move { wire.get("/api").await.code });
        }
    }
    assert!(all.join_all().await.into_iter().all(|code| code == 401));
    let most = hooks.most_waiting();
    assert!((1..=256).contains(&most), "{most} at once");
    server.stop();
}

#[tokio::test]
async fn an_issuer_by_options_and_a_server_that_is_asked() {
    let (folder, authority, signer) = (Folder::new(), Authority::new("sites"), Signer::new());
    let site = issuer(&authority, &signer).await;
    let asked = Site::start(&authority, |_, path, body| {
        assert_eq!(path, "/token");
        assert_eq!((&body["kind"], &body["apiVersion"]), (&json!("TokenReview"), &json!("authentication.k8s.io/v1")));
        Some(match body["spec"]["token"].as_str() {
            Some("w1") => json!({"status": {"authenticated": true, "user": {"username": "hook", "uid": "42", "groups": ["g"], "extra": {"A": ["b"]}}}}),
            Some("w2") => json!({"status": {"authenticated": true, "user": {"username": "hook"}, "audiences": ["other"]}}),
            _ => json!({"status": {"authenticated": false}}),
        })
    })
    .await;
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "h", "cluster": {"server": format!("{}/token", asked.url()),
            "certificate-authority-data": STANDARD.encode(authority.pem())}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "h", "user": "u"}}]});
    let (config, ca) = (folder.join("config"), folder.join("ca"));
    std::fs::write(&config, kubeconfig.to_string()).unwrap();
    std::fs::write(&ca, authority.pem()).unwrap();
    let server = Server::start(
        &folder.join("data"),
        &[
            &format!("--authentication-token-webhook-config-file={}", config.display()),
            "--authentication-token-webhook-version=v1",
            &format!("--oidc-issuer-url={}/oidc", site.url()),
            "--oidc-client-id=cl",
            &format!("--oidc-ca-file={}", ca.display()),
            "--oidc-username-claim=email",
            "--oidc-groups-claim=groups",
            "--oidc-groups-prefix=oidc:",
            "--oidc-signing-algs=ES256",
            "--oidc-required-claim=team=blue",
        ],
    );
    let wire = HttpClient::anonymous(&server);
    let good = json!({"email": "ann@example.com", "email_verified": true, "groups": ["a", "b"]});
    let user = until_known(&wire, &signer.token(&claims(&site, good.clone()))).await;
    assert_eq!(user, json!({"username": "ann@example.com", "groups": ["oidc:a", "oidc:b", "system:authenticated"]}));
    for (what, more) in [
        ("audience", json!({"aud": "other"})),
        ("end", json!({"exp": 1})),
        ("beginning", json!({"nbf": 9_999_999_999u64})),
        ("team", json!({"team": "red"})),
        ("verified", json!({"email_verified": false})),
        ("groups", json!({"groups": {"a": 1}})),
        ("issuer", json!({"iss": "https://elsewhere"})),
    ] {
        let mut changed = claims(&site, good.clone());
        changed.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(who(&wire, &signer.token(&changed)).await, Err(401), "{what}");
    }
    let stranger = Signer::new().token(&claims(&site, good));
    assert_eq!(who(&wire, &stranger).await, Err(401), "signed by somebody else");

    let user = who(&wire, "w1").await.expect("it is known");
    assert_eq!(
        user,
        json!({"username": "hook", "uid": "42", "groups": ["g", "system:authenticated"], "extra": {"A": ["b"]}})
    );
    assert_eq!([who(&wire, "w2").await, who(&wire, "w3").await], [Err(401), Err(401)]);
    // A webhook that does not know audiences authenticates for this server only.
    let own = "https://kubernetes.default.svc.cluster.local";
    let admin = HttpClient::admin(&server);
    for (audiences, expected) in [(json!(["vault"]), json!(null)), (json!(["vault", own]), json!([own]))] {
        let review = json!({"spec": {"token": "w1", "audiences": audiences}});
        let answer = admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.expect(201).json();
        assert_eq!(answer["status"]["audiences"], expected, "{answer}");
        assert_eq!(answer["status"]["authenticated"] == true, !expected.is_null(), "{answer}");
    }
    let calls = asked.calls();
    who(&wire, "w1").await.expect("it is known");
    assert_eq!(asked.calls(), calls, "the answer is kept");
}

/// An issuer with very many keys repeatedly signs with new ones: all tokens with a new key are accepted at once,
/// however many there are, and even while other clients send tokens with unknown keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_keys_of_an_issuer_are_there_for_all() {
    const OTHERS: usize = 300;
    let (folder, authority) = (Folder::new(), Authority::new("sites"));
    let key_set = |signer: &Signer| {
        let own = signer.keys()["keys"][0].clone();
        let mut keys: Vec<Value> = (0..OTHERS).map(|_| own.clone()).collect();
        keys.iter_mut().enumerate().for_each(|(at, key)| key["kid"] = format!("other {at}").into());
        keys.push(own);
        json!({"keys": keys})
    };
    let mut signer = Signer::new();
    let keys = std::sync::Arc::new(std::sync::Mutex::new(key_set(&signer)));
    let served = keys.clone();
    let site = Site::start(&authority, move |site, path, _| match path {
        "/oidc/.well-known/openid-configuration" => {
            Some(json!({"issuer": format!("{site}/oidc"), "jwks_uri": format!("{site}/keys")}))
        }
        "/keys" => Some(served.lock().unwrap().clone()),
        _ => None,
    })
    .await;
    let ca = folder.join("ca");
    std::fs::write(&ca, authority.pem()).unwrap();
    let server = Server::start(
        &folder.join("data"),
        &[
            &format!("--oidc-issuer-url={}/oidc", site.url()),
            "--oidc-client-id=cl",
            &format!("--oidc-ca-file={}", ca.display()),
            "--oidc-signing-algs=ES256",
            "--oidc-username-prefix=-",
        ],
    );
    let wire = HttpClient::anonymous(&server);
    until_known(&wire, &signer.token(&claims(&site, json!({"jti": "first"})))).await;
    for round in 0..3 {
        signer = Signer::new();
        *keys.lock().unwrap() = key_set(&signer);
        let mut asked = JoinSet::new();
        for holder in 0..16 {
            let own = if holder % 4 == 0 { &Signer::new() } else { &signer };
            let token = own.token(&claims(&site, json!({"jti": format!("{round} {holder}")})));
            let wire = wire.clone();
            asked.spawn(async move { (holder, who(&wire, &token).await.map(|user| user["username"].clone())) });
        }
        for (holder, told) in asked.join_all().await {
            let expected = if holder % 4 == 0 { Err(401) } else { Ok("s".into()) };
            assert_eq!(told, expected, "round {round}, holder {holder}");
        }
    }
}

#[tokio::test]
async fn a_file_names_issuers_and_is_followed() {
    let (folder, authority, signer) = (Folder::new(), Authority::new("sites"), Signer::new());
    let site = issuer(&authority, &signer).await;
    let file = folder.join("authn.json");
    let write = |rule: &str| {
        let configuration = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{"issuer": {"url": format!("{}/oidc", site.url()), "audiences": ["cl"], "certificateAuthority": authority.pem()},
                "claimMappings": {"username": {"expression": "'str:' + claims.sub"}, "groups": {"expression": "claims.roles"}},
                "userValidationRules": [{"expression": rule, "message": "no"}]}],
            "anonymous": {"enabled": true, "conditions": [{"path": "/healthz"}]}});
        std::fs::write(&file, configuration.to_string()).unwrap();
    };
    write("user.username != 'str:root'");
    let option = format!("--authentication-config={}", file.display());
    let server = Server::start(&folder.join("data"), &[&option]);
    let wire = HttpClient::anonymous(&server);
    let token = |sub: &str| signer.token(&claims(&site, json!({"sub": sub, "roles": ["r"]})));
    let user = until_known(&wire, &token("ann")).await;
    assert_eq!(user, json!({"username": "str:ann", "groups": ["r", "system:authenticated"]}));
    assert_eq!(who(&wire, &token("root")).await, Err(401));
    wire.get("/healthz").await.expect(200);
    wire.get("/livez").await.refused(401, "Unauthorized");
    write("user.username == 'str:root'");
    until_known(&wire, &token("root")).await;
    assert_eq!(who(&wire, &token("bob")).await, Err(401));
    write("user.(");
    let admin = HttpClient::admin(&server);
    let began = Instant::now();
    let metrics = loop {
        let metrics = admin.get("/metrics").await.text();
        if has_reloaded(&metrics, "authentication", "failure", 1) {
            break metrics;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{metrics}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(has_reloaded(&metrics, "authentication", "success", 1), "{metrics}");
    assert!(
        metrics.contains("apiserver_authentication_jwt_authenticator_latency_seconds_count{result=\"success\""),
        "{metrics}"
    );
    assert!(who(&wire, &token("root")).await.is_ok(), "the old configuration stays");
    drop(server);
    write("user.(");
    fails(
        server::holdfast([
            "apiserver",
            "--secure-port=0",
            &option,
            "--cert-dir",
            folder.join("c").to_str().unwrap(),
            "--data-dir",
            folder.join("d").to_str().unwrap(),
        ]),
        &["jwt[0].userValidationRules[0].expression: Invalid value"],
    );
}

#[tokio::test]
async fn the_server_tells_of_itself_as_an_issuer() {
    let folder = Folder::new();
    let options = [
        "--service-account-issuer=https://issuer.example",
        "--external-hostname=api.example",
        "--service-account-max-token-expiration=1h",
    ];
    let server = Server::start(&folder.join("data"), &options);
    let admin = HttpClient::admin(&server);
    let answer = admin.get("/.well-known/openid-configuration").await.expect(200);
    assert_eq!(answer.header("cache-control"), "public, max-age=3600");
    let document = answer.json();
    assert_eq!(
        (&document["issuer"], &document["response_types_supported"]),
        (&json!("https://issuer.example"), &json!(["id_token"]))
    );
    assert!(document["jwks_uri"].as_str().unwrap().starts_with("https://api.example:"));
    admin.get_as("/openid/v1/jwks", "application/json").await.expect(406);
    let keys = admin.get_as("/openid/v1/jwks", "application/jwk-set+json").await.expect(200);
    assert_eq!(keys.header("content-type"), "application/jwk-set+json");
    let asked = json!({"spec": {"expirationSeconds": 7200}});
    let answer = admin.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "a"}})).await;
    answer.expect(201);
    let answer = admin.post("/api/v1/namespaces/default/serviceaccounts/a/token", &asked).await.expect(201);
    assert!(answer.header("warning").contains("requested expiration of 7200 seconds shortened to 3600 seconds"));
    let token = answer.json()["status"]["token"].as_str().unwrap().to_owned();
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert!(
        keys.json()["keys"].as_array().unwrap().iter().any(|key| key["kid"] == header["kid"]),
        "its key is published"
    );
    let review = json!({"spec": {"token": token, "audiences": ["vault"]}});
    let answer = admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.expect(201).json();
    let why = "[invalid bearer token, token audiences [\"https://issuer.example\"] is invalid for the target audiences [\"vault\"]]";
    assert_eq!(answer["status"]["error"], why);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_may_be_told_by_another_server() {
    let (folder, hooks, issuer) = (Folder::new(), Hooks::start().await, Issuer::with_known_keys());
    let address = hooks.names.iter().find(|(name, _)| *name == "<hook>").expect("the hooks' address").1.clone();
    let site = format!("https://{address}");
    issuer.serve(&hooks, &site, "/oidc");
    issuer.serve(&hooks, &site, "/groups");
    let ca = folder.join("ca");
    std::fs::write(&ca, &hooks.authority).unwrap();
    let server = Server::start(
        &folder.join("data"),
        &[
            &format!("--oidc-issuer-url={site}/oidc"),
            "--oidc-client-id=cl",
            &format!("--oidc-ca-file={}", ca.display()),
            "--oidc-groups-claim=groups",
        ],
    );
    let wire = HttpClient::anonymous(&server);
    let token = |issuer_path: &str, more: Value| {
        let mut claims = json!({"iss": format!("{site}{issuer_path}"), "aud": "cl", "exp": "<future>", "sub": "s"});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        issuer.token(&claims, &json!({}))
    };
    let elsewhere = |path: &str| json!({"_claim_names": {"groups": "a"}, "_claim_sources": {"a": {"endpoint": format!("{site}{path}"), "access_token": "t"}}});
    until_known(&wire, &token("/oidc", json!({}))).await;
    hooks.behave("/good", json!({"raw": token("/groups", json!({"groups": ["g1", "g2"]}))}));
    hooks.behave("/without", json!({"raw": token("/groups", json!({}))}));
    hooks.behave("/late", json!({"raw": token("/groups", json!({"groups": ["g"], "exp": "<past>"}))}));
    let user = who(&wire, &token("/oidc", elsewhere("/good"))).await.expect("it is known");
    assert_eq!(user["groups"], json!(["g1", "g2", "system:authenticated"]));
    for path in ["/without", "/late", "/nowhere"] {
        assert_eq!(who(&wire, &token("/oidc", elsewhere(path))).await, Err(401), "{path}");
    }
    let mut both = elsewhere("/nowhere");
    both["groups"] = json!("own");
    let user = who(&wire, &token("/oidc", both)).await.expect("it is known");
    assert_eq!(user["groups"], json!(["own", "system:authenticated"]), "a claim that is there is not asked for");
    server.stop();
}

#[tokio::test]
async fn another_api_server_knows_tokens_and_whom_to_trust() {
    let folder = Folder::new();
    let first = Server::start(&folder.join("first"), &[]);
    let admin = HttpClient::admin(&first);
    admin.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "a"}})).await.expect(201);
    let asked = json!({"spec": {}});
    let answer = admin.post("/api/v1/namespaces/default/serviceaccounts/a/token", &asked).await.expect(201).json();
    let token = answer["status"]["token"].as_str().unwrap();

    let kubeconfig = first.kubeconfig().display().to_string();
    let options = |data: &str| {
        [
            "apiserver".to_owned(),
            "--bind-address=127.0.0.1".into(),
            "--authorization-mode=RBAC".into(),
            format!("--cert-dir={}", folder.join("pki").display()),
            format!("--data-dir={}", folder.join(data).display()),
            format!("--authentication-kubeconfig={kubeconfig}"),
        ]
    };
    let port = holdfast_tests::envtest::free_port();
    let mut command = std::process::Command::new(server::binary());
    command.args(options("second")).arg(format!("--secure-port={port}"));
    let mut second = command.spawn().expect("run holdfast");
    let wire = HttpClient { address: format!("127.0.0.1:{port}"), ..HttpClient::anonymous(&first) };
    let authority = folder.join("pki/apiserver.crt");
    let began = Instant::now();
    let wire = loop {
        if let Ok(authority) = std::fs::read_to_string(&authority) {
            let wire = HttpClient { authority, ..wire.clone() };
            let ready = wire.try_send(Method::GET, "/readyz", &[], "".into()).await;
            if ready.is_ok_and(|answer| answer.code == 200) {
                break wire;
            }
        }
        assert!(began.elapsed() < Duration::from_secs(20), "the second server is not ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let user = who(&wire, token).await.expect("the first server knows it");
    assert_eq!(user["username"], "system:serviceaccount:default:a");
    assert_eq!(who(&wire, "nobody's").await, Err(401));
    let known = HttpClient { identity: admin.identity.clone(), ..wire.clone() };
    let answer = known.post(WHO, &json!({})).await.expect(201).json();
    assert_eq!(answer["status"]["userInfo"]["groups"][0], "system:masters", "{answer}");
    second.kill().expect("end the second server");
    second.wait().expect("its end");
    // An API server that does not answer prevents the start, unless that is tolerated.
    first.stop();
    let mut third = options("third").to_vec();
    third.push("--secure-port=0".into());
    fails(server::holdfast(third), &["--authentication-kubeconfig=", "unable to load configmap"]);
}

#[tokio::test]
async fn passwords_misplaced_tokens_and_what_is_counted() {
    let folder = Folder::new();
    let (passwords, tokens) = (folder.join("passwords"), folder.join("tokens"));
    std::fs::write(&passwords, "secret,jane,1,\"a,b\"\n").unwrap();
    std::fs::write(&tokens, "t,joe@example.com,2\n").unwrap();
    let server = Server::start(
        &folder.join("data"),
        &[&format!("--basic-auth-file={}", passwords.display()), &format!("--token-auth-file={}", tokens.display())],
    );
    let wire = HttpClient::anonymous(&server);
    let with = async |credentials: &str| {
        wire.send(Method::POST, WHO, &[("authorization", credentials), ("content-type", "application/json")], "{}")
            .await
    };
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    let jane = with(&basic("jane:secret")).await.expect(201).json();
    assert_eq!(jane["status"]["userInfo"]["groups"], json!(["a", "b", "system:authenticated"]));
    with(&basic("jane:guess")).await.refused(401, "Unauthorized");
    let misplaced = with("Bearer  t").await;
    assert!(misplaced.header("warning").contains("extra space before the bearer token"));
    misplaced.refused(403, "Forbidden");
    with("Bearer t").await.expect(201);
    let metrics = HttpClient::admin(&server).get("/metrics").await.text();
    for line in [
        "authentication_attempts{result=\"error\"} 1",
        "authenticated_user_requests{username=\"email_id\"} 1",
        "authentication_duration_seconds_count{result=\"error\"} 1",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line} is not in {metrics}");
    }
    server.stop();
}

#[test]
fn all_that_is_wrong_with_options_and_files_is_told_at_once() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name).display().to_string()
    };
    let option = |name: &str, value: String| format!("--{name}={value}");
    fails(
        server::holdfast([
            "apiserver".to_owned(),
            "--secure-port=0".into(),
            option("cert-dir", folder.join("c").display().to_string()),
            option("data-dir", folder.join("d").display().to_string()),
            option("token-auth-file", file("tokens", "t,u\n")),
            option("basic-auth-file", file("passwords", "p\n")),
            option("authentication-token-webhook-config-file", file("kubeconfig", "[")),
            option("authentication-kubeconfig", "/nowhere".into()),
            option("authentication-config", file("config", "{kind: Odd}")),
            option("service-account-key-file", file("key", "none")),
            option("service-account-issuer", "a".into()),
            option("service-account-issuer", "a".into()),
            option("service-account-jwks-uri", "http://x".into()),
            option("service-account-max-token-expiration", "1m".into()),
            option("oidc-client-id", "c".into()),
        ]),
        &[
            "token-auth-file: token file",
            "line 1: must have at least 3 columns (token, user name, user uid), found 2",
            "basic-auth-file: ",
            "authentication-token-webhook-config-file: ",
            "authentication-kubeconfig: read /nowhere",
            "authentication-config: ",
            "no kind \"Odd\" is registered",
            "authentication-config file and oidc-* flags are mutually exclusive",
            "service account keys: ",
            "service-account-issuer: \"a\" is there twice",
            "service-account-jwks-uri requires https scheme",
            "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
        ],
    );
    for (option, why) in [
        ("--service-account-signing-endpoint=/s", "no other process is asked to sign tokens"),
        ("--authentication-token-webhook-version=v2", "unsupported authentication webhook version \"v2\""),
    ] {
        fails(server::holdfast(["apiserver", option]), &[why]);
    }
}
