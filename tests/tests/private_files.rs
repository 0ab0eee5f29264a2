//! Other users of the machine can neither read a cluster's files, nor put files or links where the cluster will write.

use holdfast_tests::server::{binary, fails, holdfast, succeeds};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use http::Method;
use serde_json::json;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// `holdfast`, started by a shell with umask 0, which denies other users no permission.
fn careless() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$0\" \"$@\""]).arg(binary()).env_remove("KUBECONFIG");
    command
}

fn careless_output(arguments: &[&str]) -> Output {
    careless().args(arguments).output().expect("run holdfast")
}

fn careless_server(data: &Path, options: &[&str]) -> Server {
    let mut command = careless();
    command.args(["up", "--port", "0", "--data-dir"]).arg(data).args(options);
    Server::spawn(command).unwrap_or_else(|refused| panic!("{}", refused.stderr))
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

/// Visits a folder and everything in it.
fn walk(path: &Path, visit: &mut dyn FnMut(&Path)) {
    visit(path);
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("a folder") {
            walk(&entry.expect("an entry").path(), visit);
        }
    }
}

/// Only the owner has access to the files. Certificates are an exception: all users may read them.
#[track_caller]
fn is_private(path: &Path) {
    walk(path, &mut |path| {
        let expected = if path.extension() == Some(OsStr::new("crt")) { 0o044 } else { 0 };
        assert_eq!(mode(path) & 0o077, expected, "{}: {:o}", path.display(), mode(path));
    });
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_data_folder_is_its_owners_alone() {
    let folder = Folder::new();
    let (new, empty) = (folder.join("a/new"), folder.join("empty"));
    std::fs::create_dir(&empty).expect("made");
    set_mode(&empty, 0o777);
    for data in [new.as_path(), &empty] {
        careless_server(data, &[]).stop();
        is_private(data);
        assert_eq!((mode(data), mode(&data.join("pki/ca.key"))), (0o700, 0o600));
    }

    // The files become readable for all users, as an older release or an administrator may have left them.
    walk(&new, &mut |path| set_mode(path, if path.is_dir() { 0o755 } else { 0o644 }));
    careless_server(&new, &[]).stop();
    assert_eq!(mode(&new), 0o755, "other things may be in it");
    for closed in ["log", "pki"] {
        assert_eq!(mode(&new.join(closed)), 0o700, "{closed}");
    }
    for entry in std::fs::read_dir(new.join("pki")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension() == Some(OsStr::new("key")) {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
    assert_eq!(mode(&new.join("admin.kubeconfig")), 0o600);

    // A data folder to which the group can write is warned of, and one to which all users can write is refused, because
    // other users could replace the log.
    set_mode(&new, 0o775);
    let server = careless_server(&new, &[]);
    assert!(server.stderr().contains("chmod g-w"), "{}", server.stderr());
    server.stop();
    set_mode(&new, 0o777);
    let refused = Server::try_start(&new, &[]).err().expect("a refusal");
    assert!(refused.stderr.contains("chmod o-w"), "{}", refused.stderr);
}

#[tokio::test]
async fn copies_of_a_log_are_as_private_as_the_log() {
    let (folder, copies) = (Folder::new(), Folder::new());
    let data = folder.join("data");
    let server = careless_server(&data, &[]);
    let by_server = copies.join("by-server");
    let wanted = json!({"folder": by_server}).to_string();
    let json = [("content-type", "application/json")];
    let path = "/holdfast/v1/forks";
    let made = HttpClient::admin(&server).send(Method::POST, path, &json, wanted).await;
    assert!(made.code < 300, "{}", made.text());
    is_private(&by_server);
    server.stop();

    let (fork, import, export) = (copies.join("fork"), copies.join("import"), copies.join("export"));
    std::fs::create_dir(&fork).expect("made");
    set_mode(&fork, 0o777);
    succeeds(careless_output(&["fork", "--from", text(&data), "--data-dir", text(&fork)]));
    is_private(&fork);
    succeeds(careless_output(&["log", "export", "--data-dir", text(&data), "-o", text(&export)]));
    is_private(&export);
    succeeds(careless_output(&["log", "import", "--data-dir", text(&import), text(&export)]));
    is_private(&import);

    // An export does not write through a link that another user has prepared.
    let (again, theirs) = (copies.join("again"), copies.join("theirs"));
    symlink(&theirs, copies.join("again.part")).expect("a link");
    let arguments = ["log", "export", "--data-dir", text(&data), "-o", text(&again)];
    fails(holdfast(arguments), &["again.part"]);
    std::fs::write(&theirs, "{}\n").expect("written");
    fails(holdfast(arguments.iter().copied().chain(["--resume"])), &["again.part"]);
    assert_eq!(std::fs::read_to_string(&theirs).expect("text"), "{}\n");
}

#[test]
fn keys_go_nowhere_that_somebody_else_has_prepared() {
    let (folder, shared) = (Folder::new(), Folder::new());
    let (kubeconfig, theirs) = (shared.join("admin.kubeconfig"), shared.join("theirs"));
    std::fs::write(&theirs, "theirs").expect("written");
    set_mode(&theirs, 0o666);
    for prepared in [&kubeconfig, &kubeconfig.with_extension("new")] {
        symlink(&theirs, prepared).expect("a link");
    }
    careless_server(&folder.join("data"), &["--kubeconfig", text(&kubeconfig)]).stop();
    assert_eq!(std::fs::read_to_string(&theirs).expect("text"), "theirs");
    assert!(kubeconfig.symlink_metadata().expect("a file").is_file());
    assert_eq!(mode(&kubeconfig), 0o600);
}

#[test]
fn a_cluster_for_a_command_is_private_and_the_command_is_not_held_to_it() {
    let temporary = Folder::new();
    let script = "stat -c %a $HOLDFAST_DATA_DIR $HOLDFAST_DATA_DIR/log $HOLDFAST_DATA_DIR/pki $KUBECONFIG; umask";
    let output = careless().args(["run", "--", "sh", "-c", script]).env("TMPDIR", temporary.path()).output();
    assert_eq!(succeeds(output.expect("run holdfast")), "700\n700\n700\n600\n0000\n");
}

#[test]
fn logs_are_for_the_operator() {
    let folder = Folder::new();
    let (directory, file) = (folder.join("logs"), folder.join("one.log"));
    std::fs::create_dir(&directory).expect("made");
    let options = ["--logtostderr=false", "--log-dir", text(&directory)];
    careless_server(&folder.join("a"), &options).stop();
    careless_server(&folder.join("b"), &["--logtostderr=false", "--log-file", text(&file)]).stop();
    let mut files = 0;
    walk(&directory, &mut |path| {
        if path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            files += 1;
            assert_eq!(mode(path), 0o600, "{}", path.display());
        }
    });
    assert!(files > 0);
    assert_eq!(mode(&file), 0o600);
}

/// Gives a file, a folder or a link to another user; returns false if these tests may not.
fn give_away(path: &Path) -> bool {
    std::os::unix::fs::lchown(path, Some(65534), Some(65534)).is_ok()
}

#[test]
fn what_another_user_has_prepared_is_refused_by_name() {
    let folder = Folder::new();
    let at = |name: &str| folder.join(name);
    for (name, mode) in [("file", 0o600), ("open", 0o666)] {
        std::fs::write(at(name), "").expect("written");
        set_mode(&at(name), mode);
    }
    std::fs::create_dir(at("folder")).expect("made");
    std::fs::create_dir_all(at("data/pki")).expect("made");
    std::fs::write(at("data/pki/ca.crt"), "").expect("written");
    symlink(at("elsewhere"), at("link")).expect("a link");
    symlink(at("own"), at("link-folder")).expect("a link");
    std::fs::create_dir(at("own")).expect("made");
    let given = ["file", "folder", "link", "link-folder", "data/pki/ca.crt"];
    if !given.iter().all(|name| give_away(&at(name))) {
        return eprintln!("skipped: only root can give files away");
    }
    let policy = at("policy");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
        .expect("written");
    let policy = ["--audit-policy-file", text(&policy)];
    for (data, option, named) in [
        ("folder", None, "folder"),
        ("link-folder", None, "link-folder"),
        ("link-folder/data", None, "link-folder"),
        ("data", None, "data/pki/ca.crt"),
        ("new", Some("--audit-log-path"), "file"),
        ("new", Some("--audit-log-path"), "open"),
        ("new", Some("--audit-log-path"), "link"),
        ("new", Some("--audit-log-path"), "folder/audit.log"),
        ("new", Some("--token-auth-file"), "file"),
        ("new", Some("--token-auth-file"), "open"),
        ("new", Some("--service-account-key-file"), "link"),
        ("new", Some("--client-ca-file"), "file"),
        ("new", Some("--debug-socket-path"), "folder/socket"),
        ("new", Some("--kubeconfig"), "link"),
        ("new", Some("--kubeconfig"), "folder/kubeconfig"),
        ("new", Some("--log-file"), "file"),
    ] {
        let path = at(named);
        let options: Vec<&str> = option.into_iter().flat_map(|option| [option, text(&path)]).chain(policy).collect();
        let refused =
            Server::try_start(&at(data), &options).err().unwrap_or_else(|| panic!("{data} {option:?} {named}"));
        let shown = path.parent().filter(|_| named.starts_with("folder/")).unwrap_or(&path);
        let shown = shown.canonicalize().unwrap_or_else(|_| shown.to_owned());
        let told = refused.stderr;
        assert!(told.contains(text(&shown)) || told.contains(text(&path)), "{data} {option:?} {named}: {told}");
        assert!(told.contains("another user") || told.contains("everybody on this machine"), "{named}: {told}");
        assert!(!at("elsewhere").exists(), "{named}");
    }
    assert_eq!(std::fs::read(at("file")).expect("text"), b"");
    assert_eq!(std::fs::read(at("open")).expect("text"), b"");

    let certificates = at("folder");
    let refused = holdfast(["apiserver", "--secure-port", "0", "--cert-dir", text(&certificates)]);
    fails(refused, &["folder belongs to another user"]);
    fails(holdfast(["envtest", "--assets-dir", text(&certificates)]), &["folder belongs to another user"]);
    fails(holdfast(["run", "--data-dir", text(&certificates), "--", "true"]), &["folder belongs to another user"]);
}

#[test]
fn own_links_lead_where_they_should() {
    let folder = Folder::new();
    let at = |name: &str| folder.join(name);
    symlink("disk", at("data")).expect("a link");
    // The folder has the layout in which Kubernetes mounts Secrets.
    std::fs::create_dir(at("..one")).expect("made");
    std::fs::write(at("..one/tokens"), "token,jane,1\n").expect("written");
    symlink("..one", at("..data")).expect("a link");
    symlink("..data/tokens", at("tokens")).expect("a link");
    symlink("audit-elsewhere", at("audit")).expect("a link");
    let policy = at("policy");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
        .expect("written");
    let (tokens, audit) = (at("tokens"), at("audit"));
    let options = ["--token-auth-file", text(&tokens), "--audit-policy-file", text(&policy), "--audit-log-path"];
    for path in [text(&audit), "/dev/stderr"] {
        let server = Server::start(&at("data"), &options.iter().copied().chain([path]).collect::<Vec<_>>());
        server.stop();
    }
    assert!(at("disk/log").is_dir());
    assert!(std::fs::read_to_string(at("audit-elsewhere")).expect("text").contains("requestReceivedTimestamp"));
}
