//! Several `holdfast up` on one etcd are one cluster: keys, elections, endpoints, and a server that is cut off.

use holdfast_tests::etcd::{Cluster, NEWEST, Proxy};
use holdfast_tests::keys::SHARED;
use holdfast_tests::server::{Refused, binary};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, clock, eventually};
use http::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const LEASES: [&str; 3] = ["kube-controller-manager", "kube-scheduler", "holdfast-nodes"];

/// The command `holdfast up` on this folder and etcd.
fn up(etcd: &str, folder: &Path) -> Command {
    let mut command = Command::new(binary());
    command.args(["up", "--port=0", "--controllers=-*", "--etcd-servers", etcd, "--data-dir"]).arg(folder);
    command
}

fn copy_keys(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("pki")).expect("a folder");
    for name in SHARED {
        std::fs::copy(from.join("pki").join(name), to.join("pki").join(name)).expect("a key is copied");
    }
}

fn refused(started: Result<Server, Refused>) -> String {
    match started {
        Ok(server) => panic!("{} has started", server.url()),
        Err(refused) => refused.stderr,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_joins_with_the_keys_of_the_first_one_and_not_without() {
    let (etcd, folders) = (Cluster::single(), [Folder::new(), Folder::new()]);
    let [first, second] = folders.each_ref().map(|folder| folder.join("data"));
    let servers = Server::spawn(up(&etcd.urls(), &first)).expect("the first one starts");
    let told = refused(Server::spawn(up(&etcd.urls(), &second)));
    let pki = first.join("pki").canonicalize().expect("a folder");
    for part in ["--etcd-servers", "ca.crt is missing", "sa.key is missing", &pki.display().to_string()] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!second.join("pki").exists(), "no keys are made that would have to be replaced");
    // The second folder gets a valid key that differs from the first folder's key.
    copy_keys(&first, &second);
    let own = Folder::new();
    Server::start(own.path(), &[]).stop();
    std::fs::copy(own.join("pki/sa.key"), second.join("pki/sa.key")).expect("copied");
    let told = refused(Server::spawn(up(&etcd.urls(), &second)));
    assert!(told.contains("sa.key is another one") && !told.contains("ca.crt is"), "{told}");
    std::fs::copy(own.join("pki/ca.key"), second.join("pki/ca.key")).expect("copied");
    std::fs::copy(first.join("pki/sa.key"), second.join("pki/sa.key")).expect("copied");
    let told = refused(Server::spawn(up(&etcd.urls(), &second)));
    assert!(told.contains("ca.key is not the private key of"), "{told}");
    // The second folder has certificates of an earlier cluster, which the server replaces by certificates of this
    // cluster's authorities.
    std::fs::remove_dir_all(second.join("pki")).expect("removed");
    std::fs::rename(own.join("pki"), second.join("pki")).expect("moved");
    copy_keys(&first, &second);
    let joined = Server::spawn(up(&etcd.urls(), &second)).expect("it has the keys of the first one");
    for (shown, asked) in [(&servers, &joined), (&joined, &servers)] {
        let address = HttpClient::anonymous(asked).address;
        HttpClient { address, ..HttpClient::admin(shown) }.get("/api/v1/namespaces").await.expect(200);
    }
    let stored = etcd.ctl(&["get", "/registry.holdfast/cluster", "--print-value-only"]);
    assert!(stored.contains("sha256:") && !stored.contains("PRIVATE"), "{stored}");
}

#[test]
fn of_two_first_servers_one_makes_the_keys() {
    let (etcd, folders) = (Cluster::single(), [Folder::new(), Folder::new()]);
    let urls = etcd.urls();
    let start = |folder: &Folder| Server::spawn(up(&urls, folder.path()));
    let started = std::thread::scope(|scope| {
        let both = folders.each_ref().map(|folder| scope.spawn(move || start(folder)));
        both.map(|one| one.join().expect("a start"))
    });
    let ready = started.iter().filter(|started| started.is_ok()).count();
    assert_eq!(ready, 1, "{:?}", started.each_ref().map(|started| started.as_ref().err()));
    let told = started.into_iter().find_map(Result::err).expect("one was refused").stderr;
    assert!(told.contains("keys of this cluster were made by"), "{told}");
}

/// A server of a cluster, with a proxy between it and etcd.
struct Place {
    proxy: Proxy,
    folder: Folder,
    address: &'static str,
    server: Server,
    admin: HttpClient,
}

impl Place {
    fn start(etcd: &mut Cluster, address: &'static str, clock_ahead: i64) -> Place {
        let (proxy, folder) = (Proxy::to(etcd.member(0).port()), Folder::new());
        let options = [
            &format!("--etcd-servers={}", proxy.url()),
            &format!("--advertise-address={address}"),
            "--controllers=*",
            "--nodes=2",
            "--leader-elect-lease-duration=6s",
            "--leader-elect-renew-deadline=4s",
            "--leader-elect-retry-period=1s",
        ];
        let mut command = Server::command(folder.path(), &options);
        clock::shift(&mut command, clock_ahead);
        let server = Server::spawn(command).unwrap_or_else(|refused| panic!("{}", refused.stderr));
        let admin = HttpClient::admin(&server);
        Place { proxy, folder, address, server, admin }
    }

    async fn leads(&self, lease: &str) -> bool {
        let metrics = self.admin.get("/metrics").await.expect(200).text();
        let line = format!("leader_election_master_status{{name=\"{lease}\"}} ");
        metrics.lines().any(|found| found.strip_prefix(&line) == Some("1"))
    }
}

/// The position of the only leader.
async fn leader(places: &[Place], lease: &str) -> usize {
    eventually(PATIENCE, || async {
        let mut leaders = Vec::new();
        for (at, place) in places.iter().enumerate() {
            leaders.extend(place.leads(lease).await.then_some(at));
        }
        <[usize; 1]>::try_from(leaders).map(|[leader]| leader).map_err(|found| format!("{lease}: {found:?}"))
    })
    .await
}

async fn endpoints(place: &Place, expected: &[&str]) {
    eventually(PATIENCE, || async {
        let found = place.admin.get("/api/v1/namespaces/default/endpoints/kubernetes").await.expect(200).json();
        let found = found["subsets"][0]["addresses"].as_array().cloned().unwrap_or_default();
        let found: Vec<&str> = found.iter().filter_map(|address| address["ip"].as_str()).collect();
        if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
    })
    .await;
}

fn deployment(image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 4, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}},
        },
    })
}

async fn rolled_out(place: &Place) {
    eventually(PATIENCE, || async {
        let found = place.admin.get(&format!("{DEPLOYMENTS}/web")).await.expect(200).json();
        let (status, generation) = (&found["status"], &found["metadata"]["generation"]);
        let is_done = status["observedGeneration"] == *generation
            && ["replicas", "updatedReplicas", "readyReplicas"].iter().all(|count| status[count] == 4);
        if is_done { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_are_one_cluster_while_leaders_die_and_are_cut_off() {
    let mut etcd = Cluster::single();
    // All clocks differ, and tokens of one server are immediately valid at the other servers.
    let [one, two, three] = [("192.0.2.1", -25), ("192.0.2.2", 0), ("192.0.2.3", 25)];
    let mut places: Vec<Place> =
        [one, two, three].map(|(address, ahead)| Place::start(&mut etcd, address, ahead)).into();
    for shown in &places {
        let token = "/api/v1/namespaces/kube-system/serviceaccounts/default/token";
        let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = eventually(PATIENCE, || async {
            let answer = shown.admin.post(token, &asked).await;
            if answer.code == 201 { Ok(answer.json()) } else { Err(answer.text()) }
        })
        .await;
        let token = token["status"]["token"].as_str().expect("a token").to_owned();
        for asked in &places {
            let address = asked.admin.address.clone();
            HttpClient { address: address.clone(), ..shown.admin.clone() }.get("/api/v1/nodes").await.expect(200);
            let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
            let wire = HttpClient { address, ..shown.admin.clone() }.with_token(&token);
            let told = wire.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.expect(201).json();
            let user = &told["status"]["userInfo"]["username"];
            assert_eq!(user, "system:serviceaccount:kube-system:default");
        }
    }
    endpoints(&places[1], &["192.0.2.1", "192.0.2.2", "192.0.2.3"]).await;
    places[0].admin.post(DEPLOYMENTS, &deployment("one")).await.expect(201);
    rolled_out(&places[2]).await;
    // Each server reaches the simulated nodes, whichever server runs them.
    let pods = places[0].admin.get("/api/v1/namespaces/default/pods").await.expect(200).json();
    let pod = pods["items"][0]["metadata"]["name"].as_str().expect("a name").to_owned();
    for place in &places {
        place.admin.get(&format!("/api/v1/namespaces/default/pods/{pod}/log")).await.expect(200);
    }
    // The leader is killed during the rollout of a Deployment.
    let killed = places.remove(leader(&places, LEASES[0]).await);
    let path = format!("{DEPLOYMENTS}/web");
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "two"}]}}}}).to_string();
    let headers = [("content-type", "application/strategic-merge-patch+json")];
    places[0].admin.send(Method::PATCH, &path, &headers, patch).await.expect(200);
    killed.server.kill();
    rolled_out(&places[1]).await;
    for lease in LEASES {
        leader(&places, lease).await;
    }
    let sets = places[0].admin.get("/apis/apps/v1/namespaces/default/replicasets").await.expect(200).json();
    assert_eq!(sets["items"].as_array().map(Vec::len), Some(2), "a set for each image");
    let nodes = places[0].admin.get("/api/v1/nodes").await.expect(200).json();
    assert_eq!(nodes["items"].as_array().map(Vec::len), Some(2), "{nodes}");
    let left = places.iter().map(|place| place.address).collect::<Vec<_>>();
    endpoints(&places[0], &left).await;
    // A leader that is cut off stops its work, and another server leads.
    let cut_off = leader(&places, LEASES[0]).await;
    places[cut_off].proxy.silence();
    eventually(PATIENCE, || async {
        let leads = [places[cut_off].leads(LEASES[0]).await, places[1 - cut_off].leads(LEASES[0]).await];
        if leads == [false, true] { Ok(()) } else { Err(format!("{leads:?}")) }
    })
    .await;
    places[1 - cut_off]
        .admin
        .post(DEPLOYMENTS, &{
            let mut other = deployment("one");
            other["metadata"]["name"] = "other".into();
            other
        })
        .await
        .expect(201);
    places[cut_off].proxy.heal();
    for lease in LEASES {
        leader(&places, lease).await;
    }
    // A leader that is stopped releases its leases, so that another server can lead at once.
    let stopped = places.remove(leader(&places, LEASES[0]).await);
    let Place { server, folder: _folder, proxy: _proxy, .. } = stopped;
    server.stop();
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{}", LEASES[0]);
    let lease = places[0].admin.get(&lease).await.expect(200).json();
    assert!(lease["spec"]["leaseTransitions"].as_i64() >= Some(2), "{lease}");
    assert_eq!(leader(&places, LEASES[0]).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_etcd_answers_from_what_it_has_and_says_what_it_cannot_tell() {
    let (mut etcd, folder) = (Cluster::single(), Folder::new());
    let proxy = Proxy::to(etcd.member(0).port());
    let options =
        [&format!("--etcd-servers={}", proxy.url()), "--etcd-healthcheck-timeout=1s", "--etcd-readycheck-timeout=1s"];
    let server = Server::start(folder.path(), &options.map(|option| option as &str));
    let admin = HttpClient::admin(&server);
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let written = admin.post(MAPS, &map("before")).await.expect(201).json();
    let version = written["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    for is_silent in [true, false] {
        match is_silent {
            true => proxy.silence(),
            false => proxy.close(),
        }
        let path = format!("{MAPS}/before");
        for query in ["?resourceVersion=0".to_owned(), format!("?resourceVersion={version}")] {
            assert_eq!(admin.get(&format!("{path}{query}")).await.expect(200).json(), written);
            admin.get(&format!("{MAPS}{query}")).await.expect(200);
        }
        let refused = admin.get(&path).await.refused(503, "ServiceUnavailable");
        assert!(refused["message"].to_string().contains("etcd"), "{refused}");
        admin.get("/livez").await.expect(200);
        for page in ["/healthz?verbose", "/readyz?verbose"] {
            let told = admin.get(page).await.expect(500).text();
            assert!(told.contains("[-]etcd failed"), "{told}");
        }
        let name = format!("while-{is_silent}");
        let (writing, late) = (admin.clone(), map(&name));
        let write = tokio::spawn(async move { writing.post(MAPS, &late).await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        proxy.heal();
        // Whatever the answer was, a read shows whether the write happened.
        let told = write.await.expect("an answer");
        eventually(PATIENCE, || async {
            let found = admin.get(&format!("{MAPS}/{name}")).await;
            match (told.code, found.code) {
                (201, 200) | (503, 404) => Ok(()),
                codes => Err(format!("{codes:?}: {} {}", told.text(), found.text())),
            }
        })
        .await;
        eventually(PATIENCE, || async {
            let ready = admin.get("/readyz").await;
            if ready.code == 200 { Ok(()) } else { Err(ready.text()) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_says_nothing_is_left_for_another_one() {
    let (mut etcd, folder) = (Cluster::start(NEWEST, 3, &[]), Folder::new());
    let proxies: Vec<Proxy> = etcd.members().iter().map(|member| Proxy::to(member.port())).collect();
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let server = Server::start(folder.path(), &[&format!("--etcd-servers={}", urls.join(","))]);
    let admin = HttpClient::admin(&server);
    for (nth, proxy) in proxies.iter().enumerate() {
        proxy.silence();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{nth}")}});
        admin.post(MAPS, &map).await.expect(201);
        admin.get(&format!("{MAPS}/c{nth}")).await.expect(200);
        proxy.heal();
    }
}
