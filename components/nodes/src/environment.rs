//! The environment of the processes in a simulated container: the words of the container's command, its variables and
//! its files.

use holdfast_core::schema::quantity;
use holdfast_shell::Setup;
use holdfast_shell::files::{FileSystem, Volume};
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of objects from which one container's files and variables are made.
const SOURCES_MAX: usize = 64;
/// The default path of the file with the termination message.
pub const TERMINATION_LOG: &str = "/dev/termination-log";
/// The content of the file of a token that was not requested.
const NO_TOKEN: &str = "simulated: no token was requested for this container";

/// The objects from which a container's files and variables are made, by the objects' API paths.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub objects: BTreeMap<String, Value>,
    /// The tokens of the pod's service account, by audience.
    pub tokens: BTreeMap<String, String>,
}

/// The volumes of a pod to which its containers can write, by name. The containers share these volumes.
pub type Volumes = BTreeMap<String, Volume>;

/// New volumes without files for all volumes that these containers mount and may write to.
pub fn volumes(pod: &Value, containers: &[&Value]) -> Volumes {
    let mounted: BTreeSet<&str> = containers.iter().flat_map(|container| mounted(container)).collect();
    if mounted.is_empty() {
        return Volumes::new();
    }
    let shared = items(&pod["spec"]["volumes"]).filter(|volume| !is_written(volume));
    let names = shared.map(|volume| text(&volume["name"])).filter(|name| mounted.contains(name));
    names.map(|name| (name.to_owned(), Volume::default())).collect()
}

/// The names of the volumes that a container mounts.
fn mounted(container: &Value) -> impl Iterator<Item = &str> {
    items(&container["volumeMounts"]).map(|mount| text(&mount["name"]))
}

/// Whether the kubelet, and not a container, writes the files of a volume.
fn is_written(volume: &Value) -> bool {
    ["configMap", "secret", "downwardAPI", "projected"].iter().any(|kind| volume[*kind].is_object())
}

/// The paths at which `container` mounts volumes of this map that `other` mounts as well.
pub fn shared_paths<'p>(volumes: &Volumes, container: &'p Value, other: &Value) -> Vec<&'p str> {
    let theirs: BTreeSet<&str> = mounted(other).filter(|name| volumes.contains_key(*name)).collect();
    let mounts = items(&container["volumeMounts"]).filter(|mount| theirs.contains(text(&mount["name"])));
    mounts.map(|mount| text(&mount["mountPath"])).collect()
}

/// The containers of a pod, each with the name of the list in the pod's spec that contains it.
pub fn containers(pod: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten().map(move |container| (list, container)))
}

/// The container of a pod that has this name.
pub fn container<'p>(pod: &'p Value, name: &str) -> Option<&'p Value> {
    containers(pod).map(|(_, container)| container).find(|container| container["name"] == name)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The volume mounts of a container, each with its volume.
fn mounts<'p>(pod: &'p Value, container: &'p Value) -> impl Iterator<Item = (&'p Value, &'p Value)> {
    items(&container["volumeMounts"]).filter_map(|mount| {
        let volume = items(&pod["spec"]["volumes"]).find(|volume| volume["name"] == mount["name"])?;
        Some((mount, volume))
    })
}

/// The sources of a volume. Only a projected volume may have several sources.
fn parts(volume: &Value) -> impl Iterator<Item = &Value> {
    std::iter::once(volume).chain(items(&volume["projected"]["sources"]))
}

/// The API paths of the objects from which a container's files and variables come.
pub fn sources(pod: &Value, container: &Value) -> Vec<String> {
    let namespace = text(&pod["metadata"]["namespace"]);
    let mut paths = BTreeSet::new();
    let mut add = |plural: &str, name: &Value| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty() && !name.contains(['/', '?', '#', '%'])) {
            paths.insert(format!("/api/v1/namespaces/{namespace}/{plural}/{name}"));
        }
    };
    for from in items(&container["envFrom"]) {
        add("configmaps", &from["configMapRef"]["name"]);
        add("secrets", &from["secretRef"]["name"]);
    }
    for variable in items(&container["env"]) {
        add("configmaps", &variable["valueFrom"]["configMapKeyRef"]["name"]);
        add("secrets", &variable["valueFrom"]["secretKeyRef"]["name"]);
    }
    for part in mounts(pod, container).flat_map(|(_, volume)| parts(volume)) {
        add("configmaps", &part["configMap"]["name"]);
        add("secrets", &part["secret"]["secretName"]);
        add("secrets", &part["secret"]["name"]);
    }
    let mut paths: Vec<String> = paths.into_iter().take(SOURCES_MAX).collect();
    if pod["spec"]["enableServiceLinks"] != false {
        paths.push(services(namespace));
    }
    paths
}

fn services(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services?limit=500")
}

/// The audiences of the tokens that a container mounts.
pub fn audiences(pod: &Value, container: &Value) -> BTreeSet<String> {
    let parts = mounts(pod, container).flat_map(|(_, volume)| parts(volume));
    let tokens = parts.filter(|part| part["serviceAccountToken"].is_object());
    tokens.map(|part| text(&part["serviceAccountToken"]["audience"]).to_owned()).take(SOURCES_MAX).collect()
}

/// Whether a command mentions files or variables that come from other objects, so that its course depends on these
/// objects.
pub fn mentions_sources(pod: &Value, container: &Value, words: &[String]) -> bool {
    let mentions = |what: &str| !what.is_empty() && words.iter().any(|word| word.contains(what));
    let is_foreign = |volume: &Value| {
        parts(volume)
            .any(|part| ["configMap", "secret", "serviceAccountToken"].iter().any(|kind| part[*kind].is_object()))
    };
    let mounted = mounts(pod, container).filter(|(_, volume)| is_foreign(volume));
    let variables = items(&container["env"]).filter(|variable| {
        ["configMapKeyRef", "secretKeyRef"].iter().any(|kind| variable["valueFrom"][*kind].is_object())
    });
    mounted.into_iter().any(|(mount, _)| mentions(text(&mount["mountPath"])))
        || variables.into_iter().any(|variable| mentions(text(&variable["name"])))
        || items(&container["envFrom"]).next().is_some() && mentions("$")
        || mentions("_SERVICE_")
}

impl Sources {
    fn object(&self, pod: &Value, plural: &str, name: &str) -> &Value {
        let namespace = text(&pod["metadata"]["namespace"]);
        self.objects.get(&format!("/api/v1/namespaces/{namespace}/{plural}/{name}")).unwrap_or(&Value::Null)
    }
}

/// The data of a ConfigMap or a Secret, decoded from base64 where it is encoded.
fn data(object: &Value, is_secret: bool) -> BTreeMap<String, Vec<u8>> {
    use base64::Engine as _;
    let decode = |value: &str| base64::engine::general_purpose::STANDARD.decode(value).unwrap_or_default();
    let pairs = |field: &str, encoded: bool| -> Vec<(String, Vec<u8>)> {
        let pairs = object[field].as_object().into_iter().flatten();
        pairs
            .filter_map(|(key, value)| {
                let value = value.as_str()?;
                Some((key.to_string(), if encoded { decode(value) } else { value.as_bytes().to_vec() }))
            })
            .collect()
    };
    let binary = if is_secret { Vec::new() } else { pairs("binaryData", true) };
    pairs("data", is_secret).into_iter().chain(binary).collect()
}

/// The value of a field that the downward API names with `fieldRef`.
fn field(pod: &Value, path: &str) -> String {
    let keyed = |of: &str| -> Option<String> {
        let key = path.strip_prefix(of)?.strip_prefix("['")?.strip_suffix("']")?;
        let field = of.strip_prefix("metadata.")?;
        Some(text(pod["metadata"][field].get(key).unwrap_or(&Value::Null)).to_owned())
    };
    if let Some(value) = keyed("metadata.labels").or_else(|| keyed("metadata.annotations")) {
        return value;
    }
    let listed = |field: &str| {
        let pairs = pod["metadata"][field].as_object().into_iter().flatten();
        let mut lines: Vec<String> = pairs.map(|(key, value)| format!("{key}={:?}", text(value))).collect();
        lines.sort();
        lines.join("\n")
    };
    match path {
        "metadata.name" | "metadata.namespace" | "metadata.uid" => text(&pod["metadata"][&path[9..]]).to_owned(),
        "metadata.labels" | "metadata.annotations" => listed(&path[9..]),
        "spec.nodeName" => text(&pod["spec"]["nodeName"]).to_owned(),
        "spec.serviceAccountName" => match text(&pod["spec"]["serviceAccountName"]) {
            "" => "default".to_owned(),
            name => name.to_owned(),
        },
        "status.hostIP" | "status.podIP" => text(&pod["status"][&path[7..]]).to_owned(),
        "status.hostIPs" | "status.podIPs" => {
            items(&pod["status"][&path[7..]]).map(|address| text(&address["ip"])).collect::<Vec<_>>().join(",")
        }
        _ => String::new(),
    }
}

/// The value of a resource that the downward API names with `resourceFieldRef`, in units of the divisor.
fn resource(pod: &Value, container: &Value, reference: &Value, allocatable: &Value) -> String {
    let of = match reference["containerName"].as_str() {
        Some(name) => self::container(pod, name).unwrap_or(&Value::Null),
        None => container,
    };
    let Some((kind, name)) = text(&reference["resource"]).split_once('.') else { return String::new() };
    let told = match of["resources"][kind][name].as_str() {
        Some(told) => told,
        // If the container has no limit, the value is the node's allocatable amount.
        None if kind == "limits" => allocatable[name].as_str().unwrap_or("0"),
        None => "0",
    };
    let divisor = reference["divisor"].as_str().filter(|divisor| *divisor != "0").unwrap_or("1");
    match (quantity::nanos(told), quantity::nanos(divisor)) {
        (Some(value), Some(divisor)) if divisor > 0 => ((value + divisor - 1) / divisor).to_string(),
        _ => "0".to_owned(),
    }
}

/// Replaces `$(NAME)` by the value of a known variable, and `$$` by `$`.
fn filled(template: &str, values: &BTreeMap<String, String>) -> String {
    let (mut out, mut rest) = (String::new(), template);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let reference = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')'));
        if let Some(behind) = rest.strip_prefix("$$") {
            out.push('$');
            rest = behind;
        } else if let Some((name, behind)) = reference {
            match values.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&rest[..name.len() + 3]),
            }
            rest = behind;
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

/// The variables of a container. The value of a variable may refer to earlier variables.
pub fn environment(pod: &Value, container: &Value, sources: &Sources, allocatable: &Value) -> BTreeMap<String, String> {
    let mut values = BTreeMap::from([
        ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        ("HOME".to_owned(), "/root".to_owned()),
        ("HOSTNAME".to_owned(), hostname(pod).to_owned()),
    ]);
    service_links(pod, sources, &mut values);
    let string = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for from in items(&container["envFrom"]) {
        let prefix = text(&from["prefix"]);
        for (plural, reference) in [("configmaps", "configMapRef"), ("secrets", "secretRef")] {
            let object = sources.object(pod, plural, text(&from[reference]["name"]));
            let pairs = data(object, plural == "secrets");
            values.extend(pairs.iter().map(|(key, value)| (format!("{prefix}{key}"), string(value))));
        }
    }
    for variable in items(&container["env"]) {
        let from = &variable["valueFrom"];
        let of_key = |plural: &str, reference: &Value| -> Option<String> {
            let pairs = data(sources.object(pod, plural, text(&reference["name"])), plural == "secrets");
            pairs.get(text(&reference["key"])).map(|value| string(value))
        };
        let value = match () {
            () if from["fieldRef"].is_object() => Some(field(pod, text(&from["fieldRef"]["fieldPath"]))),
            () if from["resourceFieldRef"].is_object() => {
                Some(resource(pod, container, &from["resourceFieldRef"], allocatable))
            }
            () if from["configMapKeyRef"].is_object() => of_key("configmaps", &from["configMapKeyRef"]),
            () if from["secretKeyRef"].is_object() => of_key("secrets", &from["secretKeyRef"]),
            () => Some(filled(text(&variable["value"]), &values)),
        };
        if let Some(value) = value {
            values.insert(text(&variable["name"]).to_owned(), value);
        }
    }
    values
}

/// Adds the variables of the namespace's Services, such as `NAME_SERVICE_HOST`.
fn service_links(pod: &Value, sources: &Sources, values: &mut BTreeMap<String, String>) {
    let Some(list) = sources.objects.get(&services(text(&pod["metadata"]["namespace"]))) else { return };
    for service in items(&list["items"]) {
        let address = text(&service["spec"]["clusterIP"]);
        if matches!(address, "" | "None") {
            continue;
        }
        let upper = |name: &str| name.to_ascii_uppercase().replace(['-', '.'], "_");
        let name = upper(text(&service["metadata"]["name"]));
        values.insert(format!("{name}_SERVICE_HOST"), address.to_owned());
        for (at, port) in items(&service["spec"]["ports"]).enumerate() {
            let number = port["port"].as_i64().unwrap_or(0);
            let protocol = port["protocol"].as_str().unwrap_or("TCP").to_ascii_lowercase();
            let url = format!("{protocol}://{address}:{number}");
            if at == 0 {
                values.insert(format!("{name}_SERVICE_PORT"), number.to_string());
                values.insert(format!("{name}_PORT"), url.clone());
            }
            if let Some(of) = port["name"].as_str().filter(|of| !of.is_empty()) {
                values.insert(format!("{name}_SERVICE_PORT_{}", upper(of)), number.to_string());
            }
            let begin = format!("{name}_PORT_{number}_{}", upper(&protocol));
            values.insert(begin.clone(), url);
            values.insert(format!("{begin}_PROTO"), protocol);
            values.insert(format!("{begin}_PORT"), number.to_string());
            values.insert(format!("{begin}_ADDR"), address.to_owned());
        }
    }
}

pub fn hostname(pod: &Value) -> &str {
    match text(&pod["spec"]["hostname"]) {
        "" => text(&pod["metadata"]["name"]),
        name => name,
    }
}

/// The words of a container's command; no words if only the image defines the command.
pub fn words(container: &Value, environment: &BTreeMap<String, String>) -> Vec<String> {
    let fields = ["command", "args"].into_iter().flat_map(|field| items(&container[field]));
    fields.filter_map(Value::as_str).map(|word| filled(word, environment)).collect()
}

/// The files that one source of a volume provides.
fn files_of(
    pod: &Value,
    container: &Value,
    part: &Value,
    sources: &Sources,
    allocatable: &Value,
) -> BTreeMap<String, (Vec<u8>, u32)> {
    let mode_of =
        |told: &Value, otherwise: u32| told.as_u64().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(otherwise);
    let mut found = BTreeMap::new();
    for (plural, kind) in [("configmaps", "configMap"), ("secrets", "secret")] {
        let of = &part[kind];
        if !of.is_object() {
            continue;
        }
        let name = of["secretName"].as_str().unwrap_or(text(&of["name"]));
        let pairs = data(sources.object(pod, plural, name), kind == "secret");
        let mode = mode_of(&of["defaultMode"], 0o644);
        match of["items"].as_array() {
            Some(chosen) => found.extend(chosen.iter().filter_map(|item| {
                let content = pairs.get(text(&item["key"]))?.clone();
                Some((text(&item["path"]).to_owned(), (content, mode_of(&item["mode"], mode))))
            })),
            None => found.extend(pairs.into_iter().map(|(key, content)| (key, (content, mode)))),
        }
    }
    for item in items(&part["downwardAPI"]["items"]) {
        let content = match item["fieldRef"]["fieldPath"].as_str() {
            Some(path) => field(pod, path),
            None => resource(pod, container, &item["resourceFieldRef"], allocatable),
        };
        let mode = mode_of(&item["mode"], mode_of(&part["downwardAPI"]["defaultMode"], 0o644));
        found.insert(text(&item["path"]).to_owned(), (content.into_bytes(), mode));
    }
    if part["serviceAccountToken"].is_object() {
        let token = sources.tokens.get(text(&part["serviceAccountToken"]["audience"])).map_or(NO_TOKEN, String::as_str);
        found.insert(text(&part["serviceAccountToken"]["path"]).to_owned(), (token.into(), 0o644));
    }
    found
}

/// Writes the mounted files of a container. This function is called again when the files have changed. Files that do
/// not fit into the file system are omitted.
pub fn mount(
    pod: &Value,
    container: &Value,
    sources: &Sources,
    volumes: &Volumes,
    allocatable: &Value,
    files: &mut FileSystem,
    now_ms: i64,
) {
    for (mount, volume) in mounts(pod, container) {
        let path = text(&mount["mountPath"]);
        let is_read_only = mount["readOnly"] == true;
        let inside = match text(&mount["subPathExpr"]) {
            "" => text(&mount["subPath"]).to_owned(),
            expression => filled(expression, &environment(pod, container, sources, allocatable)),
        };
        if let Some(shared) = volumes.get(text(&volume["name"])) {
            files.mount_volume(path, shared, &inside, is_read_only, now_ms);
            continue;
        }
        let content: BTreeMap<String, (Vec<u8>, u32)> =
            parts(volume).flat_map(|part| files_of(pod, container, part, sources, allocatable)).collect();
        match content.get(&inside).filter(|_| !inside.is_empty()) {
            Some((content, mode)) => {
                // As on a real node, a file that a mount's `subPath` names does not change when its volume changes
                // later.
                if !files.is_folder(path) && files.entry(path).is_none() {
                    _ = files.mount_file(path, content.clone(), *mode, true, now_ms);
                }
            }
            None => _ = files.mount(path, &content, is_written(volume) || is_read_only, now_ms),
        }
    }
}

/// The environment in which a container's processes start.
pub fn setup(
    pod: &Value,
    container: &Value,
    sources: &Sources,
    volumes: &Volumes,
    allocatable: &Value,
    now_ms: i64,
) -> Setup {
    let mut files = FileSystem::default();
    let host = hostname(pod);
    let address = text(&pod["status"]["podIP"]);
    let namespace = text(&pod["metadata"]["namespace"]);
    let mut hosts = format!("127.0.0.1\tlocalhost\n{address}\t{host}\n");
    for alias in items(&pod["spec"]["hostAliases"]) {
        let names: Vec<&str> = items(&alias["hostnames"]).map(text).collect();
        hosts.push_str(&format!("{}\t{}\n", text(&alias["ip"]), names.join("\t")));
    }
    let etc = BTreeMap::from([
        ("hostname".to_owned(), (format!("{host}\n").into_bytes(), 0o644)),
        ("hosts".to_owned(), (hosts.into_bytes(), 0o644)),
        (
            "resolv.conf".to_owned(),
            (format!("search {namespace}.svc.cluster.local svc.cluster.local cluster.local\n").into_bytes(), 0o644),
        ),
    ]);
    _ = files.mount("/etc", &etc, false, now_ms);
    _ = files.mount_file(termination_path(container), Vec::new(), 0o666, false, now_ms);
    mount(pod, container, sources, volumes, allocatable, &mut files, now_ms);
    let folder = container["workingDir"].as_str().filter(|folder| !folder.is_empty()).unwrap_or("/").to_owned();
    _ = files.make_folders(&holdfast_shell::files::absolute("/", &folder), now_ms);
    // The root file system becomes read-only last, because the kubelet itself has written the files above.
    if container["securityContext"]["readOnlyRootFilesystem"] == true {
        files.close_root(termination_path(container));
    }
    let security = |field: &str| {
        let own = &container["securityContext"][field];
        let told = if own.is_null() { &pod["spec"]["securityContext"][field] } else { own };
        told.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
    };
    Setup {
        files,
        environment: environment(pod, container, sources, allocatable),
        folder,
        hostname: host.to_owned(),
        user: security("runAsUser"),
        group: security("runAsGroup"),
    }
}

pub fn termination_path(container: &Value) -> &str {
    container["terminationMessagePath"].as_str().filter(|path| path.starts_with('/')).unwrap_or(TERMINATION_LOG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "web"}},
            "spec": {"nodeName": "node-0", "containers": [{
                "name": "c", "command": ["sh", "-c", "echo $(GREETING) $$(X) $(NO)"],
                "resources": {"limits": {"cpu": "1500m"}},
                "env": [
                    {"name": "GREETING", "value": "hello $(NAME)"},
                    {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                    {"name": "AGAIN", "value": "$(NAME)!"},
                    {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                    {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}],
                "volumeMounts": [{"name": "v", "mountPath": "/etc/config"}, {"name": "p", "mountPath": "/all"},
                    {"name": "e", "mountPath": "/data"}]}],
                "volumes": [{"name": "v", "secret": {"secretName": "s", "items": [{"key": "a", "path": "x/y", "mode": 256}]}},
                    {"name": "p", "projected": {"sources": [{"configMap": {"name": "m"}},
                        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                        {"serviceAccountToken": {"path": "token"}}]}},
                    {"name": "e", "emptyDir": {}}]},
            "status": {"podIP": "10.0.0.1"}})
    }

    #[test]
    fn variables_and_files_come_from_where_they_are_said_to() {
        let pod = pod();
        let container = &pod["spec"]["containers"][0];
        let paths = sources(&pod, container);
        assert_eq!(
            paths,
            [
                "/api/v1/namespaces/n/configmaps/m",
                "/api/v1/namespaces/n/secrets/s",
                "/api/v1/namespaces/n/services?limit=500"
            ]
        );
        let objects = [
            (paths[0].clone(), json!({"data": {"k": "v"}})),
            (paths[1].clone(), json!({"data": {"a": "c2VjcmV0"}})),
            (
                paths[2].clone(),
                json!({"items": [{"metadata": {"name": "my-db"},
                "spec": {"clusterIP": "10.96.0.7", "ports": [{"name": "sql", "port": 5432}]}}]}),
            ),
        ];
        let sources = Sources { objects: objects.into(), tokens: [(String::new(), "t0ken".to_owned())].into() };
        let setup = setup(&pod, container, &sources, &volumes(&pod, &[container]), &json!({"memory": "1Gi"}), 0);
        for (name, value) in [
            ("GREETING", "hello $(NAME)"),
            ("AGAIN", "web!"),
            ("CPU", "2"),
            ("MEMORY", "1024"),
            ("KEY", "v"),
            ("MY_DB_SERVICE_HOST", "10.96.0.7"),
            ("MY_DB_PORT_5432_TCP", "tcp://10.96.0.7:5432"),
            ("MY_DB_SERVICE_PORT_SQL", "5432"),
        ] {
            assert_eq!(setup.environment.get(name).map(String::as_str), Some(value), "{name}");
        }
        for (path, content) in [
            ("/etc/config/x/y", "secret"),
            ("/all/k", "v"),
            ("/all/labels", "app=\"web\""),
            ("/all/token", "t0ken"),
            ("/etc/hostname", "p\n"),
        ] {
            let read = setup.files.read(path).map(|read| String::from_utf8_lossy(&read).into_owned());
            assert_eq!(read.as_deref(), Ok(content), "{path}");
        }
        assert_eq!(setup.files.entry("/etc/config/x/y").map(|entry| entry.mode), Some(0o400));
        assert!(setup.files.is_folder("/data"));
        assert_eq!(words(container, &setup.environment)[2], "echo hello $(NAME) $(X) $(NO)");
        assert!(mentions_sources(&pod, container, &["cat /all/k".to_owned()]));
        assert!(!mentions_sources(&pod, container, &["cat /data/k".to_owned()]));
    }
}
