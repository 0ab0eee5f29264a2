//! Who is known by which token: Secrets of the cluster, issuers by options and by file, a server that is asked. Over the
//! wire, with the real binary.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use holdfast_tests::authority::Authority;
use holdfast_tests::server::fails;
use holdfast_tests::webhook::Site;
use holdfast_tests::wire::Wire;
use holdfast_tests::{Folder, Server, server};
use http::Method;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// Whom the server takes the holder of a token for.
async fn who(wire: &Wire, token: &str) -> Result<Value, u16> {
    let answer = wire.clone().with_token(token).post(WHO, &json!({})).await;
    match answer.code {
        201 => Ok(answer.json()["status"]["userInfo"].clone()),
        code => Err(code),
    }
}

/// Whoever signs tokens of an issuer.
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

/// An issuer that serves what it must, and its claims with changes.
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

/// The user of a token, as soon as the issuer is known.
async fn until_known(wire: &Wire, token: &str) -> Value {
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
    let (admin, wire) = (Wire::admin(&server), Wire::anonymous(&server));
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
    let wire = Wire::anonymous(&server);
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
    let calls = asked.calls();
    who(&wire, "w1").await.expect("it is known");
    assert_eq!(asked.calls(), calls, "the answer is kept");
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
    let wire = Wire::anonymous(&server);
    let token = |sub: &str| signer.token(&claims(&site, json!({"sub": sub, "roles": ["r"]})));
    let user = until_known(&wire, &token("ann")).await;
    assert_eq!(user, json!({"username": "str:ann", "groups": ["r", "system:authenticated"]}));
    assert_eq!(who(&wire, &token("root")).await, Err(401));
    wire.get("/healthz").await.expect(200);
    wire.get("/livez").await.refused(401, "Unauthorized");
    write("user.username == 'str:root'");
    until_known(&wire, &token("root")).await;
    assert_eq!(who(&wire, &token("bob")).await, Err(401));
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
    let admin = Wire::admin(&server);
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
