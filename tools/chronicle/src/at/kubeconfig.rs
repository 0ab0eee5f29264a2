//! Kubeconfigs as documents: contexts are added, and the rest of the file does not change.

use crate::files::{Readers, WriteMode, check};
use crate::remote::RemoteServer;
use anyhow::{Context as _, Result, anyhow, bail};
use holdfast_core::object::yaml::{self, Ordered as Value, OrderedFields as Mapping};
use std::path::{Path, PathBuf};

/// A context, with its cluster and its user.
pub struct Context {
    pub name: String,
    /// The file that defines the context.
    pub file: PathBuf,
    /// The address of the context's server, without a trailing slash.
    pub server: String,
    cluster: Value,
    user: Value,
    context: Value,
}

/// The fields that name files. Relative paths start at the kubeconfig's folder.
const CLUSTER_FILES: [&str; 1] = ["certificate-authority"];
const USER_FILES: [&str; 3] = ["client-certificate", "client-key", "tokenFile"];

impl Context {
    /// The context that the options name, or else the current context. If there are several files, they are merged as
    /// by kubectl.
    pub fn find(server: &RemoteServer) -> Result<Context> {
        let mut files = Vec::new();
        for file in server.files()? {
            // As in kubectl, one of several files may be missing.
            match std::fs::read_to_string(&file) {
                Ok(text) => files.push((parse(&text, &file)?, file)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && server.kubeconfig.is_none() => {}
                Err(error) => return Err(error).with_context(|| format!("read the kubeconfig {}", file.display())),
            }
        }
        let current = || files.iter().find_map(|(document, _)| current(document)).map(str::to_owned);
        let name = server
            .context
            .clone()
            .or_else(current)
            .context("the kubeconfig has no current context: name one with --context")?;
        let (context, file) = entry(&files, "contexts", &name, "context")?;
        let part = |field: &str, of: &str| {
            let name = context[field].as_str().ok_or_else(|| anyhow!("the context {name:?} names no {field}"))?;
            let (mut value, file) = entry(&files, of, name, field)?;
            let names: &[&str] = if field == "cluster" { &CLUSTER_FILES } else { &USER_FILES };
            names.iter().for_each(|name| anchor(&mut value, name, file));
            if let Some(exec) = value.get_mut("exec") {
                anchor_command(exec, file);
            }
            anyhow::Ok(value)
        };
        let (cluster, user) = (part("cluster", "clusters")?, part("user", "users")?);
        let url = cluster["server"].as_str().ok_or_else(|| anyhow!("the context {name:?} has no server"))?;
        let server = url.trim_end_matches('/').to_owned();
        Ok(Context { name, file: file.to_owned(), server, cluster, user, context })
    }

    /// A new kubeconfig that contains only this context, at another address.
    pub fn alone(&self, name: &str, server: &str) -> Result<String> {
        let mut document = parse("apiVersion: v1\nkind: Config\n", Path::new(""))?;
        self.put(&mut document, name, server, true)?;
        document["current-context"] = name.into();
        Ok(yaml::write(&document)?)
    }

    /// Adds this context with another address to a file, or replaces the context with this name. If another file
    /// defines the context, the user is added too.
    pub fn add(&self, file: &Path, name: &str, server: &str) -> Result<()> {
        let mut document = match std::fs::read_to_string(file) {
            Ok(text) => parse(&text, file)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(WriteMode::Synced.file(file, &self.alone(name, server)?, Readers::Owner)?);
            }
            Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
        };
        let is_own = std::fs::canonicalize(file).ok() == std::fs::canonicalize(&self.file).ok();
        self.put(&mut document, name, server, !is_own)?;
        write(file, &document)
    }

    fn put(&self, document: &mut Value, name: &str, server: &str, with_user: bool) -> Result<()> {
        let mut cluster = self.cluster.clone();
        cluster["server"] = server.into();
        let mut context = self.context.clone();
        context["cluster"] = name.into();
        if with_user {
            context["user"] = name.into();
            insert(document, "users", name, "user", self.user.clone())?;
        }
        insert(document, "clusters", name, "cluster", cluster)?;
        insert(document, "contexts", name, "context", context)
    }
}

/// Makes a context the current context, in the file that sets the current context.
pub fn set_current(server: &RemoteServer, added_to: &Path, name: &str) -> Result<()> {
    for file in server.files()? {
        if let Ok(text) = std::fs::read_to_string(&file) {
            let mut document = parse(&text, &file)?;
            if current(&document).is_some() || file == added_to {
                document["current-context"] = name.into();
                return write(&file, &document);
            }
        }
    }
    bail!("{} is not one of the kubeconfigs in use", added_to.display())
}

fn current(document: &Value) -> Option<&str> {
    document["current-context"].as_str().filter(|name| !name.is_empty())
}

fn parse(text: &str, file: &Path) -> Result<Value> {
    let value: Value = yaml::read(text).with_context(|| format!("{} is not YAML", file.display()))?;
    match value {
        Value::Null => Ok(Value::Mapping(Mapping::new())),
        value @ Value::Mapping(_) => Ok(value),
        _ => bail!("{} is not a kubeconfig", file.display()),
    }
}

/// Finds an entry by its name. Returns the field `field` of the entry, and the first file that has the entry.
fn entry<'f>(files: &'f [(Value, PathBuf)], list: &str, name: &str, field: &str) -> Result<(Value, &'f PathBuf)> {
    let mut known = Vec::new();
    for (document, file) in files {
        for entry in document[list].as_sequence().into_iter().flatten() {
            if entry["name"].as_str() == Some(name) {
                return Ok((entry[field].clone(), file));
            }
            known.extend(entry["name"].as_str());
        }
    }
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    bail!("the kubeconfig has no {field} {name:?}: it has {known}")
}

fn insert(document: &mut Value, list: &str, name: &str, field: &str, value: Value) -> Result<()> {
    let fields = [("name", Value::from(name)), (field, value)];
    let entry = Value::Mapping(fields.into_iter().map(|(name, value)| (name.into(), value)).collect());
    let entries = &mut document[list];
    if entries.is_null() {
        *entries = Value::Sequence(Vec::new());
    }
    let entries = entries.as_sequence_mut().ok_or_else(|| anyhow!("{list} in the kubeconfig is not a list"))?;
    match entries.iter_mut().find(|entry| entry["name"].as_str() == Some(name)) {
        Some(old) => *old = entry,
        None => entries.push(entry),
    }
    Ok(())
}

/// Makes the path in a field absolute, so that it is valid in any file.
fn anchor(value: &mut Value, field: &str, kubeconfig: &Path) {
    if let Some(path) = value.get(field).and_then(Value::as_str).filter(|path| !path.is_empty()) {
        let folder = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
        let anchored = folder.parent().unwrap_or(Path::new("/")).join(path);
        value[field] = anchored.display().to_string().into();
    }
}

/// A command with a slash is a path from the kubeconfig's folder; a command without one is searched in PATH.
fn anchor_command(exec: &mut Value, kubeconfig: &Path) {
    if exec["command"].as_str().is_some_and(|command| command.contains('/')) {
        anchor(exec, "command", kubeconfig);
    }
}

fn write(file: &Path, document: &Value) -> Result<()> {
    // A symbolic link stays a link: the file to which it leads is written. `check` has refused links of other users.
    check(file)?;
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    Ok(WriteMode::Synced.file(&file, &yaml::write(document)?, Readers::Owner)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "\
apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {cluster: one, user: me, namespace: shop}}
clusters:
- {name: one, cluster: {server: 'https://host:1/', certificate-authority: ca.crt, tls-server-name: x}}
preferences: {unknown: kept}
";
    const SECOND: &str = "\
contexts:
- {name: there, context: {cluster: one, user: nobody}}
users:
- name: me
  user: {client-key: keys/me.key, exec: {command: ./login, env: [{name: A, value: b}]}}
";

    fn files() -> (tempfile::TempDir, RemoteServer) {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("first", FIRST), ("second", SECOND)] {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        let kubeconfig = Some(folder.path().join("first"));
        (folder, RemoteServer { kubeconfig, context: None })
    }

    /// The contents and paths of both files, as if `KUBECONFIG` named them.
    fn joined(folder: &Path) -> Vec<(Value, PathBuf)> {
        let read = |name: &str| {
            let file = folder.join(name);
            (parse(&std::fs::read_to_string(&file).expect("text"), &file).expect("YAML"), file)
        };
        vec![read("first"), read("second")]
    }

    #[test]
    fn entries_come_from_the_first_file_that_has_them() {
        let (folder, server) = files();
        let files = joined(folder.path());
        let (user, file) = entry(&files, "users", "me", "user").expect("a user");
        assert!(file.ends_with("second") && user["exec"]["env"][0]["value"] == "b");
        let error = |server: &RemoteServer| Context::find(server).err().expect("an error").to_string();
        assert_eq!(error(&server), "the kubeconfig has no user \"me\": it has none");
        let unknown = RemoteServer { context: Some("nowhere".into()), ..server.clone() };
        assert_eq!(error(&unknown), "the kubeconfig has no context \"nowhere\": it has here");
        let empty = RemoteServer { kubeconfig: Some(folder.path().join("second")), context: None };
        assert_eq!(error(&empty), "the kubeconfig has no current context: name one with --context");
    }

    #[test]
    fn a_context_is_added_and_the_rest_stays() {
        let (folder, server) = files();
        let users = "users:\n- name: me\n  user: {client-key: keys/me.key, exec: {command: ./login}}\n";
        let first = folder.path().join("first");
        std::fs::write(&first, format!("{FIRST}{users}")).expect("written");
        let context = Context::find(&server).expect("a context");
        assert_eq!((context.name.as_str(), context.server.as_str()), ("here", "https://host:1"));
        // The context is added twice under one name, which gives one entry.
        for version in [7, 7] {
            let name = format!("here@{version}");
            context.add(&first, &name, "https://host:1/at/7").expect("added");
        }
        let document = parse(&std::fs::read_to_string(&first).expect("text"), &first).expect("YAML");
        assert_eq!(document["preferences"]["unknown"], "kept");
        assert_eq!(document["current-context"], "here");
        let contexts = document["contexts"].as_sequence().expect("contexts");
        assert_eq!(contexts.len(), 2);
        assert_eq!(contexts[1]["context"]["cluster"], "here@7");
        assert_eq!(
            (&contexts[1]["context"]["user"], &contexts[1]["context"]["namespace"]),
            (&"me".into(), &"shop".into())
        );
        let cluster = &document["clusters"][1]["cluster"];
        assert_eq!((&cluster["server"], &cluster["tls-server-name"]), (&"https://host:1/at/7".into(), &"x".into()));
        set_current(&server, &first, "here@7").expect("set");
        assert_eq!(Context::find(&server).expect("a context").server, "https://host:1/at/7");

        // In another file the user is added too, and relative paths become absolute.
        let other = folder.path().join("other");
        context.add(&other, "here@7", "https://host:1/at/7").expect("added");
        let document = parse(&std::fs::read_to_string(&other).expect("text"), &other).expect("YAML");
        let anchored = |path: &str| Value::from(folder.path().join(path).display().to_string());
        assert_eq!(document["users"][0]["user"]["client-key"], anchored("keys/me.key"));
        assert_eq!(document["users"][0]["user"]["exec"]["command"], anchored("./login"));
        assert_eq!(document["clusters"][0]["cluster"]["certificate-authority"], anchored("ca.crt"));
        assert_eq!(document["current-context"], "here@7");
    }
}
