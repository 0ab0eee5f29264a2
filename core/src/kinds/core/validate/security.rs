//! Validation of security contexts of pods and containers: users, profiles, sysctls, and rules for each operating
//! system.

use crate::kinds::rules::{At, Seen, between, descending_path, known, named, one_of};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

const USER_MAX: i64 = i32::MAX as i64;
const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
const PROFILE_BYTES_MAX: usize = 4095;
const SYSCTL_BYTES_MAX: usize = 253;
const SYSCTL_RULE: &str = "must have at most 253 characters and match regex \
                           ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const CREDENTIAL_BYTES_MAX: usize = 64 * 1024;
const DOMAIN_BYTES_MAX: usize = 256;
const USER_BYTES_MAX: usize = 104;
const USER_FORBIDDEN: &str = "\"/\\:;|=,+*?<>@[]";
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";
/// Fields that a Windows pod cannot have; the flag says whether the field is in the security context or in the spec.
const POD_NOT_ON_WINDOWS: &[(&str, bool)] = &[
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
    ("supplementalGroups", true),
    ("supplementalGroupsPolicy", true),
    ("seLinuxChangePolicy", true),
];
const CONTAINER_NOT_ON_WINDOWS: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];
pub(super) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Validates `spec.securityContext` and related fields of the spec.
pub(super) fn pod_context(spec: At, causes: &mut Causes) {
    let context = spec.get("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        between(context.get(field), 0, USER_MAX, causes);
    }
    for group in context.get("supplementalGroups").items() {
        between(group, 0, USER_MAX, causes);
    }
    // Kubernetes reports `shareProcessNamespace` below the security context.
    if spec.get("shareProcessNamespace").is_true() && spec.get("hostPID").is_true() {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        causes.push(context.get("shareProcessNamespace").invalid_as(true, detail));
    }
    sysctls(spec, context.get("sysctls"), causes);
    known(context.get("fsGroupChangePolicy"), &["Always", "OnRootMismatch"], causes);
    seccomp(context.get("seccompProfile"), causes);
    windows_options(context.get("windowsOptions"), causes);
    app_armor(context.get("appArmorProfile"), causes);
    known(context.get("supplementalGroupsPolicy"), &["Merge", "Strict"], causes);
    // `MountOption` needs the feature gate SELinuxMount, which is off.
    known(context.get("seLinuxChangePolicy"), &["Recursive"], causes);
}

pub(super) fn container_context(context: At, host_users: bool, causes: &mut Causes) {
    if !context.is_set() {
        return;
    }
    between(context.get("runAsUser"), 0, USER_MAX, causes);
    between(context.get("runAsGroup"), 0, USER_MAX, causes);
    let mount = context.get("procMount");
    if mount.is_set() {
        if !matches!(mount.text(), "Default" | "Unmasked") {
            causes.push(mount.not_supported(&["Default", "Unmasked"]));
        }
        if host_users && mount.text() == "Unmasked" {
            causes.push(mount.invalid("`hostUsers` must be false to use `Unmasked`"));
        }
    }
    seccomp(context.get("seccompProfile"), causes);
    if context.get("allowPrivilegeEscalation").is_false() {
        if context.get("privileged").is_true() {
            causes.push(context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true"));
        }
        let added = context.value["capabilities"]["add"].as_array().into_iter().flatten();
        if added.filter(|name| *name == "CAP_SYS_ADMIN").count() > 0 {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            causes.push(context.invalid(detail));
        }
    }
    windows_options(context.get("windowsOptions"), causes);
    app_armor(context.get("appArmorProfile"), causes);
}

/// Reports each privileged container of the pod spec at this pointer.
pub fn privileged(object: &Value, pods_at: &str) -> Causes {
    let mut causes = Causes::default();
    privileged_below(At::root(object), pods_at, &mut causes);
    causes
}

fn privileged_below(at: At, pods_at: &str, causes: &mut Causes) {
    if let Some(path) = pods_at.strip_prefix('/') {
        let (name, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
        return privileged_below(at.get(name), rest, causes);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in at.get(list).items() {
            let context = container.get("securityContext");
            let privileged = context.get("privileged");
            if privileged.is_true() {
                causes.push(privileged.forbidden("disallowed by cluster policy"));
            }
        }
    }
}

fn seccomp(profile: At, causes: &mut Causes) {
    if !profile.is_set() {
        return;
    }
    let (ty, local) = (profile.get("type"), profile.get("localhostProfile"));
    if ty.is_empty() {
        causes.push(ty.required("type is required when seccompProfile is set"));
    } else {
        one_of(ty, PROFILES, causes);
    }
    match (ty.text() == "Localhost", local.is_set()) {
        (true, false) => causes.push(local.required("must be set when seccomp type is Localhost")),
        (true, true) => descending_path(local, causes),
        (false, true) => {
            let cause = Cause::invalid(local.path(), profile.value, "can only be set when seccomp type is Localhost");
            causes.push(cause);
        }
        (false, false) => {}
    }
}

fn app_armor(profile: At, causes: &mut Causes) {
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    if !profile.is_set() {
        return;
    }
    let (ty, local) = (profile.get("type"), profile.get("localhostProfile"));
    match ty.text() {
        "Localhost" if !local.is_set() => causes.push(local.required(MISSING)),
        "Localhost" => {
            if local.text().trim() != local.text() {
                causes.push(local.invalid("must not be padded with whitespace"));
            } else if local.is_empty() {
                causes.push(local.required(MISSING));
            }
            if local.text().len() > PROFILE_BYTES_MAX {
                causes.push(Cause::too_long(local.path(), PROFILE_BYTES_MAX));
            }
        }
        "RuntimeDefault" | "Unconfined" if local.is_set() => {
            causes.push(local.invalid("can only be set when AppArmor type is Localhost"));
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => causes.push(ty.required("type is required when appArmorProfile is set")),
        _ => causes.push(ty.not_supported(PROFILES)),
    }
}

fn sysctls(spec: At, list: At, causes: &mut Causes) {
    let mut seen = Seen::default();
    for entry in list.items() {
        let name = entry.get("name");
        if name.is_empty() {
            causes.push(name.required(""));
            continue;
        }
        if !is_sysctl(name.text()) {
            causes.push(name.invalid(SYSCTL_RULE));
        } else if seen.again(name.value) {
            causes.push(name.duplicate());
        }
        let shared = kernel_namespace(name.text()).filter(|field| spec.get(field).is_true());
        if let Some(field) = shared {
            causes.push(name.invalid(&format!("may not be specified when '{field}' is true")));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let plain = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    name.len() <= SYSCTL_BYTES_MAX
        && name.split(['.', '/']).all(|part| {
            plain(part.bytes().next())
                && plain(part.bytes().next_back())
                && part.bytes().all(|byte| plain(Some(byte)) || matches!(byte, b'-' | b'_'))
        })
}

/// The field that shares the sysctl's kernel namespace with the host.
fn kernel_namespace(name: &str) -> Option<&'static str> {
    let starts_with_slash = name.find(['.', '/']).is_some_and(|at| name.as_bytes()[at] == b'/');
    let name = if starts_with_slash { name.replace('/', ".") } else { name.to_owned() };
    if name.starts_with("net.") {
        return Some("hostNetwork");
    }
    let of_ipc =
        name == "kernel.sem" || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|start| name.starts_with(start));
    of_ipc.then_some("hostIPC")
}

fn windows_options(options: At, causes: &mut Causes) {
    let name = options.get("gmsaCredentialSpecName");
    if name.is_set() {
        named(name, names::subdomain, causes);
    }
    let credential = options.get("gmsaCredentialSpec");
    if credential.is_set() && credential.is_empty() {
        causes.push(credential.invalid("gmsaCredentialSpec cannot be an empty string"));
    } else if credential.text().len() > CREDENTIAL_BYTES_MAX {
        causes.push(credential.invalid("gmsaCredentialSpec size must be under 64 KiB"));
    }
    let user = options.get("runAsUserName");
    if user.is_set() {
        causes.extend(
            windows_user(user.text())
                .iter()
                .map(|message| Cause::from(user.invalid(&format!("runAsUserName{message}")))),
        );
    }
}

/// The faults of `DOMAIN\user`, as texts that follow the field's name in the message.
fn windows_user(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec![" cannot be an empty string".into()];
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return vec![" cannot contain control characters".into()];
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return vec![" cannot contain more than one backslash".into()],
    };
    let mut messages = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN_BYTES_MAX {
            messages.push(format!("'s Domain length must be under {DOMAIN_BYTES_MAX} characters"));
        }
        if !is_windows_domain(domain) {
            messages.push("'s Domain doesn't match the NetBios nor the DNS format".into());
        }
    }
    if user.is_empty() {
        messages.push("'s User cannot be empty".into());
    } else if user.len() > USER_BYTES_MAX {
        messages.push(format!("'s User length must not be longer than {USER_BYTES_MAX} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        messages.push("'s User cannot contain only periods or spaces".into());
    }
    if user.contains(|c| USER_FORBIDDEN.contains(c)) {
        messages.push(format!("'s User cannot contain the following characters: {USER_FORBIDDEN}"));
    }
    messages
}

fn is_windows_domain(domain: &str) -> bool {
    let length = domain.chars().count();
    let net_bios =
        (1..=15).contains(&length) && !domain.starts_with('.') && !domain.contains(|c| "\\/:*?\"<>|".contains(c));
    net_bios || domain.split('.').all(|label| names::label(&label.to_ascii_lowercase()).is_empty())
}

/// Validates Windows host processes: if one container is a host process, all containers must be host processes, and the
/// pod must use the host's network.
pub(super) fn host_processes(spec: At, causes: &mut Causes) {
    let of = |at: At| at.value["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
    let pod = of(spec);
    let (mut all, mut on_host) = (0, 0);
    for list in CONTAINER_LISTS {
        for container in spec.get(list).items() {
            all += 1;
            let own = of(container);
            if let (Some(pod), Some(own)) = (pod, own)
                && pod != own
            {
                let context = container.get("securityContext");
                let options = context.get("windowsOptions");
                let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
                causes.push(options.get("hostProcess").invalid(&detail));
            }
            on_host += usize::from(own.or(pod) == Some(true));
        }
    }
    if on_host == 0 {
        return;
    }
    if on_host != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        causes.push(spec.invalid_unshown(detail));
    }
    let network = spec.get("hostNetwork");
    if !network.is_true() {
        causes.push(network.invalid_as(false, "hostNetwork must be true if pod contains any hostProcess containers"));
    }
}

/// Validates that a pod with its own user namespace shares no other namespace with the host.
pub(super) fn host_users(spec: At, causes: &mut Causes) {
    if !spec.get("hostUsers").is_false() {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.get(field).is_true() {
            causes.push(spec.get(shown).forbidden("when `hostUsers` is false"));
        }
    }
}

/// Reports fields that the pod's operating system does not support.
pub(super) fn operating_system(spec: At, causes: &mut Causes) {
    let os = spec.get("os");
    if !os.is_set() {
        return;
    }
    let name = os.get("name");
    let context = spec.get("securityContext");
    let contexts = |check: &mut dyn FnMut(At)| {
        for list in CONTAINER_LISTS {
            spec.get(list).items().for_each(|container| check(container.get("securityContext")));
        }
    };
    match name.text() {
        "" => causes.push(name.required("")),
        "linux" => {
            let mut check = |context: At| {
                let options = context.get("windowsOptions");
                if options.is_set() {
                    causes.push(options.forbidden("windows options cannot be set for a linux pod"));
                }
            };
            check(context);
            contexts(&mut check);
        }
        "windows" => {
            for (field, in_context) in POD_NOT_ON_WINDOWS {
                let at = if *in_context { context.get(field) } else { spec.get(field) };
                // `hostPID` and `hostIPC` are refused if true, the other fields if set.
                let is_said = if matches!(*field, "hostPID" | "hostIPC") { at.is_true() } else { at.is_set() };
                if is_said {
                    causes.push(at.forbidden(NOT_ON_WINDOWS));
                }
            }
            contexts(&mut |context| {
                let fields = CONTAINER_NOT_ON_WINDOWS.iter().filter(|field| context.get(field).is_set());
                causes.extend(fields.map(|field| context.get(field).forbidden(NOT_ON_WINDOWS)));
            });
        }
        _ => causes.push(os.holding(name.value).not_supported(&["linux", "windows"])),
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::json;

    #[test]
    fn each_rule_of_security_contexts() {
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {"containers": [{"name": "a", "image": "a", "securityContext": {"runAsUser": 1}}]},
        });
        let own = |field: &str| format!("/spec/containers/0/securityContext{field}");
        let pod = |field: &str| format!("/spec/securityContext{field}");
        check_rows(
            &good,
            &[
                (&pod("/runAsUser"), json!(-1), "spec.securityContext.runAsUser: Invalid value: -1: must be between 0"),
                (&pod("/supplementalGroups"), json!([-1]), "spec.securityContext.supplementalGroups[0]: Invalid value"),
                (
                    &pod("/fsGroupChangePolicy"),
                    json!("No"),
                    "spec.securityContext.fsGroupChangePolicy: Unsupported val",
                ),
                (
                    &pod("/seccompProfile"),
                    json!({"type": "Localhost"}),
                    "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp",
                ),
                (
                    &pod("/seccompProfile"),
                    json!({"type": "Localhost", "localhostProfile": "../a"}),
                    "spec.securityContext.seccompProfile.localhostProfile: Invalid value: \"../a\": must not contain",
                ),
                (
                    &pod("/seccompProfile"),
                    json!({"type": "Mine"}),
                    "spec.securityContext.seccompProfile.type: Unsupported value: \"Mine\": supported values: \"Local",
                ),
                (&pod("/seccompProfile"), json!({"type": "RuntimeDefault"}), ""),
                (
                    &pod("/appArmorProfile"),
                    json!({"type": "Localhost", "localhostProfile": " a"}),
                    "spec.securityContext.appArmorProfile.localhostProfile: Invalid value: \" a\": must not be padded",
                ),
                (&pod("/sysctls"), json!([{"name": "net.core.somaxconn", "value": "1"}]), ""),
                (
                    &pod("/sysctls"),
                    json!([{"name": "Net", "value": "1"}]),
                    "spec.securityContext.sysctls[0].name: Invalid value: \"Net\": must have at most 253",
                ),
                (
                    &pod("/sysctls"),
                    json!([{"name": "a.b", "value": "1"}, {"name": "a.b", "value": "2"}]),
                    "spec.securityContext.sysctls[1].name: Duplicate value: \"a.b\"",
                ),
                (
                    "/spec",
                    json!({"hostNetwork": true, "containers": [{"name": "a", "image": "a"}],
                        "securityContext": {"sysctls": [{"name": "net/core/somaxconn", "value": "1"}]}}),
                    "spec.securityContext.sysctls[0].name: Invalid value: \"net/core/somaxconn\": may not be specified \
                     when 'hostNetwork' is true",
                ),
                (
                    &own(""),
                    json!({"privileged": true, "allowPrivilegeEscalation": false}),
                    "spec.containers[0].securityContext: Invalid value: {\"allowPrivilegeEscalation\":false,",
                ),
                (
                    &own(""),
                    json!({"capabilities": {"add": ["CAP_SYS_ADMIN"]}, "allowPrivilegeEscalation": false}),
                    "spec.containers[0].securityContext: Invalid value: {\"allowPrivilegeEscalation\":false,",
                ),
                (&own("/procMount"), json!("Half"), "spec.containers[0].securityContext.procMount: Unsupported value"),
                (
                    &own("/procMount"),
                    json!("Unmasked"),
                    "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be",
                ),
                (
                    &own("/windowsOptions"),
                    json!({"hostProcess": true}),
                    "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains",
                ),
                (
                    &own("/windowsOptions"),
                    json!({"runAsUserName": "a\\b\\c"}),
                    "spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: \"a\\\\b\\\\c\": \
                     runAsUserName cannot contain more than one backslash",
                ),
                ("/spec/os", json!({"name": "plan9"}), "spec.os: Unsupported value: \"plan9\": supported values: \"li"),
                (
                    "/spec/os",
                    json!({"name": "windows"}),
                    "spec.containers[0].securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
                ),
                ("/spec/os", json!({"name": "linux"}), ""),
                (
                    "/spec",
                    json!({"hostUsers": false, "hostPID": true, "containers": [{"name": "a", "image": "a"}]}),
                    "spec.HostPID: Forbidden: when `hostUsers` is false",
                ),
                (
                    "/spec",
                    json!({"shareProcessNamespace": true, "hostPID": true, "containers": [{"name": "a", "image": "a"}]}),
                    "spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and",
                ),
            ],
        );
    }
}
