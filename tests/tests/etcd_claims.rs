//! Addresses and node ports of Services on an etcd that a kube-apiserver shares. A client of etcd plays the
//! kube-apiserver: it makes the same transactions.

use holdfast_core::etcd::{Keys, Media, Ports, address_key, read_holder, write_address};
use holdfast_core::kinds::networking::AddressOwner;
use holdfast_core::kinds::offered::NEWEST;
use holdfast_core::kinds::records::NODE_PORTS;
use holdfast_core::stamp::Stamp;
use holdfast_encryption::Live;
use holdfast_storage_etcd::client::{self, Compare, Etcd, Expected, Operation, Range, Txn};
use holdfast_storage_etcd::grpc::{Address, Cluster as Client};
use holdfast_tests::clock;
use holdfast_tests::etcd::{Cluster, Kine, Proxy};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const SERVICES: &str = "/api/v1/namespaces/default/services";
const PORTS: (u16, u16) = (30000, 30099);
const OPTIONS: [&str; 2] = ["--service-cluster-ip-range=10.96.0.0/25", "--service-node-port-range=30000-30099"];

/// The other API server on the same store.
struct Neighbour {
    etcd: Client,
    keys: Keys,
    /// The keys with which the neighbour encrypts its values.
    secrets: Arc<Live>,
}

impl Neighbour {
    fn on(url: &str) -> Neighbour {
        Neighbour::with(url, Live::none())
    }

    fn with(url: &str, secrets: Arc<Live>) -> Neighbour {
        let address = Address::parse(url).expect("an address");
        let etcd = Client::new(vec![address], None).expect("a client");
        Neighbour { etcd, keys: Keys::new("/registry"), secrets }
    }

    fn seal(&self, storage: &str, key: &str, value: Vec<u8>) -> Vec<u8> {
        self.secrets.keyring().seal_value(storage, key, value).expect("a sealed value").to_vec()
    }

    fn open(&self, storage: &str, key: &str, value: &[u8]) -> Vec<u8> {
        self.secrets.keyring().open_value(storage, key, value).expect("a value that opens").into_owned()
    }

    fn raw(&self, key: &str) -> Vec<u8> {
        let found = self.etcd.range(&Range::of(client::KeyRange::one(key.to_owned()))).expect("a read").found;
        found.first().unwrap_or_else(|| panic!("there is no {key}")).value.to_vec()
    }

    /// Sends a transaction in kube-apiserver's form. Returns whether it was carried out.
    fn write(&self, replaces: u64, operation: Operation) -> bool {
        let key = operation.key().clone();
        let otherwise = (replaces > 0).then(|| client::KeyRange::one(key.clone()));
        let compares = vec![Compare { key, is: Expected::ModRevision(replaces) }];
        let asked = Txn { compares, operations: vec![operation], otherwise };
        self.etcd.transact(vec![asked]).remove(0).expect("an answer").held
    }

    fn create(&self, key: &str, value: Vec<u8>) -> bool {
        self.write(0, Operation::Put { key: key.to_owned().into(), value: value.into(), lease: 0 })
    }

    fn take_address(&self, address: &str, name: &str, time: &str) -> bool {
        let key = address_key(&self.keys, address);
        let stamp = Stamp { time: time.parse().expect("a time"), seed: 7 };
        let holder = AddressOwner { namespace: "default".into(), name: name.into() };
        let value = write_address(&key, address, &holder, stamp, Media::Protobuf, NEWEST).expect("a value");
        self.create(&key, self.seal("ipaddresses", &key, value))
    }

    /// Sets or clears a port, comparing the bitmap's revision. Returns whether that changed the bitmap.
    fn set_port(&self, port: u16, is_taken: bool) -> bool {
        loop {
            let (revision, mut ports) = self.ports();
            if !ports.set(port, is_taken) {
                return false;
            }
            let key = self.keys.of_record(&NODE_PORTS, "");
            let value =
                self.seal(NODE_PORTS.storage, &key, ports.write(&key, Media::Protobuf).expect("a value")).into();
            if self.write(revision, Operation::Put { key: key.into(), value, lease: 0 }) {
                return true;
            }
        }
    }

    fn ports(&self) -> (u64, Ports) {
        let key = self.keys.of_record(&NODE_PORTS, "");
        let found = self.etcd.range(&Range::of(client::KeyRange::one(key.clone()))).expect("a read").found;
        match found.first() {
            Some(found) => {
                let value = self.open(NODE_PORTS.storage, &key, &found.value);
                (found.mod_revision, Ports::read(&key, &value, PORTS).expect("a bitmap"))
            }
            None => (0, Ports::free(PORTS)),
        }
    }

    /// The reserved addresses, each with the name of its Service and its revision.
    fn addresses(&self) -> BTreeMap<String, (String, u64)> {
        let from = address_key(&self.keys, "");
        let range = client::KeyRange::between(from.clone(), format!("{}0", from.trim_end_matches('/')));
        let found = self.etcd.range(&Range::of(range)).expect("a read").found;
        let shown = found.iter().map(|found| {
            let key = String::from_utf8_lossy(&found.key).into_owned();
            let value = self.open("ipaddresses", &key, &found.value);
            let holder = read_holder(&key, &value).expect("an address").expect("a Service's");
            (key[from.len()..].to_owned(), (holder.name, found.mod_revision))
        });
        shown.collect()
    }

    fn taken_ports(&self) -> Vec<u16> {
        self.ports().1.taken().collect()
    }
}

fn service(name: &str, more: &Value) -> Value {
    let mut spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

async fn make(wire: &HttpClient, name: &str, more: &Value) -> Result<Value, String> {
    let answer = wire.post(SERVICES, &service(name, more)).await;
    match answer.code {
        201 => Ok(answer.json()),
        _ => Err(answer.json()["message"].as_str().unwrap_or_default().to_owned()),
    }
}

fn start(url: &str, folder: &Folder, address: &str) -> Server {
    let (etcd, address) = (format!("--etcd-servers={url}"), format!("--advertise-address={address}"));
    Server::start(folder.path(), &[&etcd, &address, OPTIONS[0], OPTIONS[1]])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_service_has_is_recorded_for_other_servers_before_it_comes_and_until_it_goes() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let (server, neighbour) = (start(&etcd.urls(), &folder, "10.1.1.1"), Neighbour::on(&etcd.urls()));
    let wire = HttpClient::admin(&server);
    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let made = make(&wire, "own", &local).await.expect("created");
    let address = made["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    let port = |field: &Value| u16::try_from(field.as_u64().expect("a port")).expect("a port");
    let mut ports = vec![port(&made["spec"]["ports"][0]["nodePort"]), port(&made["spec"]["healthCheckNodePort"])];
    ports.sort_unstable();
    assert_eq!(neighbour.taken_ports(), ports);
    let (holder, revision) = neighbour.addresses().remove(&address).expect("an address");
    assert_eq!(holder, "own");
    let own: u64 = made["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number");
    assert!(revision < own, "the address was taken before");
    let shown = wire.get(&format!("/apis/networking.k8s.io/v1/ipaddresses/{address}")).await.expect(200).json();
    assert_eq!(shown["spec"]["parentRef"], json!({"resource": "services", "namespace": "default", "name": "own"}));
    // A Service that changes its type to ClusterIP releases its node ports, and keeps its address.
    let patch = json!({"spec": {"type": "ClusterIP", "externalTrafficPolicy": null}});
    let merge = [("content-type", "application/merge-patch+json")];
    wire.send(Method::PATCH, &format!("{SERVICES}/own"), &merge, patch.to_string()).await.expect(200);
    assert_eq!((neighbour.taken_ports(), neighbour.addresses().contains_key(&address)), (vec![], true));
    wire.send(Method::DELETE, &format!("{SERVICES}/own"), &[], "").await.expect(200);
    assert!(!neighbour.addresses().contains_key(&address));
    // Another Service can have the released address and port at once.
    let again = json!({"clusterIP": address, "ports": [{"port": 80, "nodePort": ports[0]}]});
    make(&wire, "other", &again).await.expect("created");
    // A create that fails, and a create as a dry run, leave no reservation.
    let (before, taken) = (neighbour.addresses(), neighbour.taken_ports());
    make(&wire, "other", &json!({})).await.expect_err("there is one");
    wire.post(&format!("{SERVICES}?dryRun=All"), &service("dry", &json!({}))).await.expect(201);
    assert_eq!((neighbour.addresses(), neighbour.taken_ports()), (before, taken));
    // One Service may use one port number for two protocols.
    let both = json!([
        {"name": "t", "port": 53, "nodePort": 30077, "protocol": "TCP"},
        {"name": "u", "port": 53, "nodePort": 30077, "protocol": "UDP"},
    ]);
    make(&wire, "dns", &json!({"ports": both})).await.expect("created");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_neighbour_has_taken_is_not_given_out() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let (server, neighbour) = (start(&etcd.urls(), &folder, "10.1.1.1"), Neighbour::on(&etcd.urls()));
    let wire = HttpClient::admin(&server);
    assert!(neighbour.take_address("10.96.0.50", "theirs", "2026-01-01T00:00:00Z") && neighbour.set_port(30050, true));
    let why = make(&wire, "a", &json!({"clusterIP": "10.96.0.50"})).await.expect_err("it is theirs");
    assert!(why.contains("failed to allocate IP 10.96.0.50: provided IP is already allocated"), "{why}");
    let theirs = json!({"ports": [{"port": 80, "nodePort": 30050}]});
    let why = make(&wire, "a", &theirs).await.expect_err("it is theirs");
    assert!(why.contains("provided port is already allocated"), "{why}");
    assert_eq!(neighbour.taken_ports(), [30050], "nothing else was taken");
    // Once the neighbour has released the port, it can be reserved.
    neighbour.set_port(30050, false);
    eventually(PATIENCE, async || make(&wire, "a", &theirs).await).await;
    // The neighbour reserves all node ports except one. The server finds the remaining port for one Service, and has
    // none for the next Service.
    (PORTS.0..=PORTS.1)
        .filter(|port| *port != 30050 && *port != 30099)
        .for_each(|port| _ = neighbour.set_port(port, true));
    let last = make(&wire, "last", &json!({})).await.expect("created");
    assert_eq!(last["spec"]["ports"][0]["nodePort"], 30099);
    let why = make(&wire, "none", &json!({})).await.expect_err("there is none");
    assert!(why.contains("range is full"), "{why}");
    assert!(!neighbour.addresses().values().any(|(name, _)| name == "none"));
}

/// If a configuration says so, a Service and the records of its address and ports are encrypted. The server can also
/// read the records of a neighbour that encrypts its records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_addresses_and_ports_are_given_out_once_too() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let key = "{name: k, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";
    let entry = format!("{{resources: ['*.*'], providers: [{{aesgcm: {{keys: [{key}]}}}}]}}");
    let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{entry}]\n");
    let file = folder.join("encryption.yaml");
    std::fs::write(&file, &text).expect("written");
    let neighbour = Neighbour::with(&etcd.urls(), Live::of_text(&text, false, false).expect("a configuration"));
    assert!(neighbour.set_port(30050, true) && neighbour.take_address("10.96.0.50", "theirs", "2099-01-01T00:00:00Z"));
    let servers = format!("--etcd-servers={}", etcd.urls());
    let option = format!("--encryption-provider-config={}", file.display());
    let options = [servers.as_str(), &option, OPTIONS[0], OPTIONS[1]];
    let server = Server::start(&folder.join("data"), &options);
    let wire = HttpClient::admin(&server);
    for (theirs, expected) in [
        (json!({"clusterIP": "10.96.0.50"}), "provided IP is already allocated"),
        (json!({"ports": [{"port": 80, "nodePort": 30050}]}), "provided port is already allocated"),
    ] {
        let why = make(&wire, "own", &theirs).await.expect_err("it is theirs");
        assert!(why.contains(expected), "{why}");
    }
    let made = make(&wire, "own", &json!({"ports": [{"port": 80, "nodePort": 30051}]})).await.expect("created");
    let address = made["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    assert_eq!(neighbour.taken_ports(), [30050, 30051]);
    assert_eq!(neighbour.addresses()[&address].0, "own");
    let keys = [address_key(&neighbour.keys, &address), neighbour.keys.of_record(&NODE_PORTS, "")];
    for key in keys.iter().map(String::as_str).chain(["/registry/services/specs/default/own"]) {
        let raw = neighbour.raw(key);
        assert!(raw.starts_with(b"k8s:enc:aesgcm:v1:k:"), "{key}: {}", raw.escape_ascii());
    }
    server.stop();
    // After a restart the server knows the address and ports, and releases the address and ports of the deleted
    // Service.
    let server = Server::start(&folder.join("data"), &options);
    let wire = HttpClient::admin(&server);
    let why = make(&wire, "other", &json!({"clusterIP": address})).await.expect_err("own has it");
    assert!(why.contains("already allocated"), "{why}");
    wire.send(Method::DELETE, &format!("{SERVICES}/own"), &[], "").await.expect(200);
    assert_eq!((neighbour.taken_ports(), neighbour.addresses().contains_key(&address)), (vec![30050], false));
}

/// Many Services at once on two servers, while the neighbour takes addresses and ports from the same small ranges.
async fn race(url: &str) {
    let (folders, neighbour) = ([Folder::new(), Folder::new()], Neighbour::on(url));
    let servers = [start(url, &folders[0], "10.1.1.1"), start(url, &folders[1], "10.1.1.2")];
    let theirs = std::thread::spawn({
        let neighbour = Neighbour::on(url);
        move || {
            let (mut addresses, mut ports) = (Vec::new(), Vec::new());
            for nth in 0..30_u16 {
                let address = format!("10.96.0.{}", 16 + nth * 3);
                addresses.extend(neighbour.take_address(&address, "theirs", "2026-01-01T00:00:00Z").then_some(address));
                let port = 30000 + nth * 3;
                ports.extend(neighbour.set_port(port, true).then_some(port));
            }
            (addresses, ports)
        }
    });
    let wires = [HttpClient::admin(&servers[0]), HttpClient::admin(&servers[1])];
    let creating = (0..40).map(|nth| {
        let wire = &wires[nth % 2];
        async move { make(wire, &format!("s{nth}"), &json!({})).await.unwrap_or_else(|why| panic!("s{nth}: {why}")) }
    });
    let made = futures_util::future::join_all(creating).await;
    let (addresses, ports) = theirs.join().expect("the neighbour");
    let mut given: BTreeMap<String, String> = addresses.iter().map(|one| (one.clone(), "theirs".to_owned())).collect();
    let mut taken = ports.clone();
    for service in &made {
        let name = service["metadata"]["name"].as_str().expect("a name").to_owned();
        let address = service["spec"]["clusterIP"].as_str().expect("an address").to_owned();
        taken.push(u16::try_from(service["spec"]["ports"][0]["nodePort"].as_u64().expect("a port")).expect("a port"));
        assert_eq!(given.insert(address.clone(), name), None, "{address} was given out twice");
    }
    taken.sort_unstable();
    assert!(taken.is_sorted_by(|a, b| a < b), "a port was given out twice: {taken:?}");
    assert_eq!(neighbour.taken_ports(), taken);
    let mut recorded: BTreeMap<String, String> =
        neighbour.addresses().into_iter().map(|(address, (name, _))| (address, name)).collect();
    assert_eq!(recorded.remove("10.96.0.1").as_deref(), Some("kubernetes"));
    assert_eq!(recorded, given);
    // All Services are deleted at once; only the neighbour's reservations are left.
    let going = (0..40).map(|nth| {
        let wire = &wires[(nth + 1) % 2];
        async move { wire.send(Method::DELETE, &format!("{SERVICES}/s{nth}"), &[], "").await.expect(200) }
    });
    futures_util::future::join_all(going).await;
    let mut ports = ports;
    ports.sort_unstable();
    assert_eq!(neighbour.taken_ports(), ports);
    assert_eq!(neighbour.addresses().len(), addresses.len() + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_address_and_no_port_is_given_out_twice() {
    race(&Cluster::single().urls()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_on_a_store_for_kubernetes_alone() {
    race(&Kine::start().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_recorded_wrongly_is_put_right() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let neighbour = Neighbour::on(&etcd.urls());
    let mut unrecorded = service(
        "unrecorded",
        &json!({
            "clusterIP": "10.96.0.60", "clusterIPs": ["10.96.0.60"], "ports": [{"port": 80, "nodePort": 30060, "protocol": "TCP"}]
        }),
    );
    unrecorded["metadata"] =
        json!({"name": "unrecorded", "namespace": "default", "uid": "5f7c3a2e-1111-4222-8333-444455556666"});
    assert!(neighbour.create("/registry/services/specs/default/unrecorded", unrecorded.to_string().into_bytes()));
    assert!(neighbour.take_address("10.96.0.61", "leaked", "2026-01-01T00:00:00Z"));
    let server = start(&etcd.urls(), &folder, "10.1.1.1");
    let wire = HttpClient::admin(&server);
    eventually(PATIENCE, async || {
        let (addresses, ports) = (neighbour.addresses(), neighbour.taken_ports());
        let holder = addresses.get("10.96.0.60").map(|(name, _)| name.as_str());
        match holder == Some("unrecorded") && !addresses.contains_key("10.96.0.61") && ports == [30060] {
            true => Ok(()),
            false => Err(format!("{addresses:?} {ports:?}")),
        }
    })
    .await;
    let events = wire.get("/api/v1/namespaces/default/events").await.expect(200).json();
    let mut reasons: Vec<&str> =
        events["items"].as_array().expect("events").iter().filter_map(|event| event["reason"].as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["ClusterIPNotAllocated", "IPAddressNotAllocated", "PortNotAllocated"]);
}

/// A server is killed after the deletion of a Service, before it frees the Service's address and node port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_server_did_not_free_is_freed_by_another_one() {
    let (mut etcd, folders) = (Cluster::single(), [Folder::new(), Folder::new()]);
    let (proxy, neighbour) = (Proxy::to(etcd.member(0).port()), Neighbour::on(&etcd.urls()));
    let server = start(&proxy.url(), &folders[0], "10.1.1.1");
    let wire = HttpClient::admin(&server);
    let made = make(&wire, "own", &json!({"ports": [{"port": 80, "nodePort": 30070}]})).await.expect("created");
    let address = made["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    // The server learns of the deletion of the Service a second late.
    proxy.delay(Duration::from_secs(1));
    let deleting = tokio::spawn(async move { wire.send(Method::DELETE, &format!("{SERVICES}/own"), &[], "").await });
    let key = client::KeyRange::one("/registry/services/specs/default/own");
    while !neighbour.etcd.range(&Range::of(key.clone())).expect("a read").found.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.kill();
    deleting.abort();
    assert!(neighbour.addresses().contains_key(&address) && neighbour.taken_ports() == [30070], "nothing is freed");
    // The other server's clock is two minutes ahead. So for this server no creation of a Service with this address can
    // be in progress any more.
    let servers = format!("--etcd-servers={}", etcd.urls());
    let options =
        [servers.as_str(), "--advertise-address=10.1.1.2", OPTIONS[0], OPTIONS[1], "--etcd-repair-interval=100ms"];
    let mut command = Server::command(folders[1].path(), &options);
    clock::shift(&mut command, 120);
    let other = Server::spawn(command).unwrap_or_else(|refused| panic!("{}", refused.stderr));
    eventually(PATIENCE, async || match (neighbour.addresses(), neighbour.taken_ports()) {
        (addresses, ports) if !addresses.contains_key(&address) && ports.is_empty() => Ok(()),
        found => Err(format!("{found:?}")),
    })
    .await;
    // Another Service can have the address and the node port that the second server has freed.
    let again = json!({"clusterIP": address, "ports": [{"port": 80, "nodePort": 30070}]});
    make(&HttpClient::admin(&other), "again", &again).await.expect("created");
    let told = other.stderr();
    assert!(told.contains("node ports {30070} are free"), "{told}");
    assert_eq!((neighbour.addresses()[&address].0.as_str(), neighbour.taken_ports()), ("again", vec![30070]));
}

/// A server does not change a bitmap of another range: servers with different ranges would overwrite each other's
/// bitmap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bitmap_of_another_range_is_not_touched() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let neighbour = Neighbour::on(&etcd.urls());
    let key = "/registry/ranges/servicenodeports";
    let value = Ports::free((31000, 31999)).write(key, Media::Protobuf).expect("a value");
    assert!(neighbour.create(key, value.clone()));
    let server = start(&etcd.urls(), &folder, "10.1.1.1");
    let why = make(&HttpClient::admin(&server), "a", &json!({})).await.expect_err("another range");
    assert!(why.contains("31000-31999") && why.contains("--service-node-port-range"), "{why}");
    let found = neighbour.etcd.range(&Range::of(client::KeyRange::one(key))).expect("a read").found;
    assert_eq!(found[0].value, value);
    assert!(!neighbour.addresses().values().any(|(name, _)| name == "a"));
}
