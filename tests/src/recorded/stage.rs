//! The server of a setup with the servers around it.

use super::issuer::{Issuer, rsa_key};
use super::{Recording, fields, filled, texts};
use crate::authority::Authority;
use crate::hooks::Hooks;
use crate::scripts::ScriptClient;
use crate::server::Refused;
use crate::wire::HttpClient;
use crate::{Folder, Server};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Options of the recorded servers about their location, which are left out.
const ELSEWHERE: &[&str] = &[
    "--advertise-address",
    "--bind-address",
    "--endpoint-reconciler-type",
    "--etcd-servers",
    "--secure-port",
    "--tls-cert-file",
    "--tls-private-key-file",
];
/// The static tokens of a setup that names no tokens.
const TOKENS: &str = "tok,admin,admin,\"system:masters\"\n";

pub struct RecordedSetup {
    server: Server,
    pub(super) hooks: Hooks,
    pub(super) issuer: Issuer,
    /// Signs certificates of clients and of front proxies.
    authority: Authority,
    wire: HttpClient,
    /// A connection for each certificate.
    clients: HashMap<String, ScriptClient>,
    /// The names in scenarios that stand for values of this run, each with its value.
    pub(super) names: Vec<(String, String)>,
    _folder: Folder,
}

impl RecordedSetup {
    /// Starts the server of a setup; fails if it refuses its options.
    pub async fn start(recording: &Recording, name: &str) -> Result<RecordedSetup, Refused> {
        let setup = &recording.setups[name];
        let (folder, hooks, authority, issuer) =
            (Folder::new(), Hooks::start().await, Authority::new("ca"), Issuer::with_known_keys());
        let mut names: Vec<(String, String)> =
            hooks.names.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let address = &names.iter().find(|(name, _)| name == "<hook>").expect("the hooks' address").1;
        for path in ["/oidc", "/oidc2"] {
            issuer.serve(&hooks, &format!("https://{address}"), path);
        }
        let mut places = names.clone();
        places.extend(write_keys(&folder, &authority, &hooks));
        let base: Vec<&str> = recording.base.iter().map(String::as_str).collect();
        let options = prepare(&folder, &base, setup, &places);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let server = Server::try_start(&folder.join("data"), &options)?;
        let wire = HttpClient::anonymous(&server);
        names.push(("<server>".to_owned(), wire.address.clone()));
        let clients = HashMap::new();
        let mut stage = RecordedSetup { server, hooks, issuer, authority, wire, clients, names, _folder: folder };
        stage.make_known_issuer().await;
        Ok(stage)
    }

    /// Creates the objects by which the distribution of the recorded servers lets every user read `/.well-known`.
    async fn make_known_issuer(&mut self) {
        let name = json!({"name": "system:openshift:public-info-viewer"});
        let rules = json!([{"verbs": ["get"], "nonResourceURLs": ["/.well-known", "/.well-known/*"]}]);
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name["name"]});
        let subjects: Vec<Value> = ["system:authenticated", "system:unauthenticated"]
            .map(|group| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}))
            .into();
        for (resource, body) in [
            ("clusterroles", json!({"metadata": name, "rules": rules})),
            ("clusterrolebindings", json!({"metadata": name, "roleRef": role, "subjects": subjects})),
        ] {
            let path = format!("/apis/rbac.authorization.k8s.io/v1/{resource}");
            self.ask(&json!({"method": "POST", "path": path, "body": body}), &Vec::new()).await;
        }
    }

    /// The client with this certificate: `{CN, O}`, or null for none.
    pub(super) fn client(&mut self, certificate: &Value) -> &mut ScriptClient {
        let (wire, authority) = (&self.wire, &self.authority);
        self.clients.entry(certificate.to_string()).or_insert_with(|| {
            let wire = match certificate["CN"].as_str() {
                Some(name) => {
                    let groups: Vec<&str> = texts(&certificate["O"]).collect();
                    wire.clone().with_identity(authority.client(name, &groups))
                }
                None => wire.clone(),
            };
            ScriptClient::new(wire, "tok")
        })
    }

    pub fn stop(self) {
        self.server.stop();
    }
}

/// Writes the keys that options of setups name; returns their names and paths.
fn write_keys(folder: &Folder, authority: &Authority, hooks: &Hooks) -> Vec<(String, String)> {
    let pki = folder.join("pki");
    std::fs::create_dir(&pki).expect("a folder for keys");
    let write = |name: &str, text: &str| {
        std::fs::write(pki.join(name), text).expect("write a key");
        pki.join(name).display().to_string()
    };
    write("ca.crt", authority.pem());
    write("sa.key", &rsa_key("service accounts"));
    // The text gets the indentation of the setups' files.
    let indented = hooks.authority.trim_end().replace('\n', "\n      ");
    vec![
        ("<ca file>".to_owned(), write("hooks.crt", &hooks.authority)),
        ("<CA of the issuer>".to_owned(), indented),
        ("<pki>".to_owned(), pki.display().to_string()),
    ]
}

/// Writes the files of a setup; returns its options, which override the options in `base`.
pub fn prepare(folder: &Folder, base: &[&str], setup: &Value, names: &[(String, String)]) -> Vec<String> {
    let place = folder.path().to_str().expect("UTF-8");
    let fill = |text: &str| filled(text, names).replace("<dir>", place);
    for (name, text) in fields(&setup["files"]) {
        std::fs::write(folder.join(name), fill(text.as_str().expect("text"))).expect("write a file");
    }
    std::fs::write(folder.join("tokens.csv"), setup["tokens"].as_str().unwrap_or(TOKENS)).expect("write the tokens");
    let option = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
    let own: Vec<&str> = texts(&setup["flags"]).collect();
    let mut left_out: Vec<String> = own.iter().map(|flag| option(flag)).collect();
    left_out.extend(texts(&setup["without"]).chain(ELSEWHERE.iter().copied()).map(str::to_owned));
    let base = base.iter().filter(|flag| !left_out.contains(&option(flag))).copied();
    let mut options: Vec<String> = base.chain(own.iter().copied()).map(fill).collect();
    // No controllers run unless a setup names some: scenarios create the accounts that they need.
    options.push(format!("--controllers={}", setup["controllers"].as_str().unwrap_or("-*")));
    // These plug-ins are on by default in Kubernetes. Here they are on by default only if controllers create the
    // accounts that pods need.
    options.push("--enable-admission-plugins=ServiceAccount,StorageObjectInUseProtection".to_owned());
    options
}
