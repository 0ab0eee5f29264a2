//! Paths that are open to everybody.

/// A path that everybody may request. A `*` at the end means all paths with this prefix. The path of a resource is
/// never open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPath {
    text: String,
    is_prefix: bool,
}

impl std::str::FromStr for OpenPath {
    type Err = String;

    fn from_str(text: &str) -> Result<OpenPath, String> {
        let path = text.strip_prefix('/').unwrap_or(text);
        let (path, is_prefix) = path.strip_suffix('*').map_or((path, false), |path| (path, true));
        if path.contains('*') {
            return Err(format!("only trailing * allowed in {text:?}"));
        }
        Ok(OpenPath { text: path.to_owned(), is_prefix })
    }
}

impl OpenPath {
    pub fn covers(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        if self.is_prefix { path.starts_with(&self.text) } else { path == self.text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_paths_are_everybodys() {
        let covers = |open: &str, path: &str| open.parse::<OpenPath>().expect("a path").covers(path);
        assert!(covers("/healthz", "/healthz") && covers("livez", "/livez") && covers("/open/*", "/open/a/b"));
        assert!(!covers("/healthz", "/healthz/ping") && !covers("/open/*", "/opened") && covers("*", "/x"));
        assert_eq!("/a*b".parse::<OpenPath>(), Err("only trailing * allowed in \"/a*b\"".into()));
    }
}
