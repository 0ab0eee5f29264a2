//! Warns of files in a volume that have the path of another file, or a path inside it.

use super::list;
use crate::refusal::Texts;
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The maximum number of overlaps that are reported for one volume.
const TOLD_MAX: usize = 100;
/// The maximum number of bytes of a name or path that are shown. Each name or path may be shown a hundred times, and
/// real ones are shorter.
const SHOWN_MAX: usize = 256;
/// The maximum number of parent folders of a path that are looked up. The limit is needed because the client chooses
/// the depth.
const FOLDERS_MAX: usize = 64;

/// Warns of overlapping paths of the files of one volume.
pub(super) fn of_volume(volume: &Value, warnings: &mut Texts) {
    let name = cut(volume["name"].as_str().unwrap_or_default());
    for (source, shown) in [
        ("configMap", format!("ConfigMap \"{}\"", text(&volume["configMap"]["name"]))),
        ("secret", format!("Secret \"{}\"", text(&volume["secret"]["secretName"]))),
        ("downwardAPI", "DownwardAPI".to_owned()),
    ] {
        let mut files = Files::default();
        for path in paths(&volume[source]) {
            files.add(path, &"".into());
        }
        warnings.extend(files.told.iter().map(|two| format!("volume \"{name}\" ({shown}): overlapping paths: {two}")));
    }
    let mut files = Files::default();
    for source in list(&volume["projected"]["sources"]) {
        if SOURCES.iter().all(|field| source[*field].is_null()) {
            warnings.push(format!("volume \"{name}\" (Projected) has no sources provided"));
        }
        let before = files.told.len();
        projected(source, &mut files);
        let told = files.told[before..].iter();
        warnings.extend(told.map(|two| format!("volume \"{name}\" (Projected): overlapping paths: {two}")));
    }
}

const SOURCES: [&str; 6] =
    ["secret", "downwardAPI", "configMap", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];

fn projected(source: &Value, files: &mut Files) {
    for (field, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        let shown = format!("{kind} \"{}\"", text(&source[field]["name"])).into();
        paths(&source[field]).for_each(|path| files.add(path, &shown));
    }
    let downward = "DownwardAPI".into();
    paths(&source["downwardAPI"]).for_each(|path| files.add(path, &downward));
    files.add(path(&source["serviceAccountToken"]["path"]), &"ServiceAccountToken".into());
    let bundle = &source["clusterTrustBundle"];
    let signer = if bundle["name"].is_null() { &bundle["signerName"] } else { &bundle["name"] };
    files.add(path(&bundle["path"]), &format!("ClusterTrustBundle \"{}\"", text(signer)).into());
    let certificate = &source["podCertificate"];
    for (field, shown) in [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ] {
        files.add(path(&certificate[field]), &shown.into());
    }
}

fn paths(source: &Value) -> impl Iterator<Item = &str> {
    list(&source["items"]).iter().map(|item| path(&item["path"]))
}

fn path(path: &Value) -> &str {
    path.as_str().unwrap_or_default()
}

fn text(text: &Value) -> &str {
    cut(text.as_str().unwrap_or_default())
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN_MAX)]
}

/// The files of one volume that were found so far, by path, each with its number and its source. `told` has the
/// warnings about overlaps.
#[derive(Default)]
struct Files {
    known: BTreeMap<String, Vec<(usize, Rc<str>)>>,
    told: Vec<String>,
    count: usize,
}

impl Files {
    fn add(&mut self, path: &str, source: &Rc<str>) {
        let path = path.trim_end_matches('/');
        if path.is_empty() || self.told.len() >= TOLD_MAX {
            return;
        }
        let folders = path.match_indices('/').take(FOLDERS_MAX).map(|(end, _)| &path[..end]);
        let above = folders.chain([path]).filter_map(|known| self.known.get_key_value(known));
        let within = format!("{path}/");
        let below = self.known.range(within.clone()..).take_while(|(known, _)| known.starts_with(&within));
        let found = above.chain(below).flat_map(|(known, files)| files.iter().map(move |file| (known, file)));
        let mut found: Vec<_> = found.take(TOLD_MAX).collect();
        found.sort_by_key(|(_, (number, _))| *number);
        let two = |(known, (_, other)): &(&String, &(usize, Rc<str>))| {
            format!("{} with {}", shown(path, source), shown(known, other))
        };
        self.told.extend(found.iter().map(two));
        self.known.entry(path.to_owned()).or_default().push((self.count, source.clone()));
        self.count += 1;
    }
}

fn shown(path: &str, source: &str) -> String {
    let path = cut(path);
    if source.is_empty() { format!("\"{path}\"") } else { format!("\"{path}\" ({source})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_looked_for_in_the_first_folders_of_its_path() {
        let told = |folders: usize| {
            let mut files = Files::default();
            files.add(&"a/".repeat(folders), &"".into());
            files.add(&("a/".repeat(1000) + "b"), &"".into());
            files.told.len()
        };
        assert_eq!([told(1), told(FOLDERS_MAX), told(FOLDERS_MAX + 1)], [1, 1, 0]);
    }

    #[test]
    fn long_names_and_paths_are_told_in_part() {
        let long = "é".repeat(1000);
        let file = holdfast_value::json!({"path": long});
        let volume = holdfast_value::json!({"name": long, "configMap": {"name": long, "items": [file, file]}});
        let mut warnings = Texts::default();
        of_volume(&volume, &mut warnings);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].len() < 5 * SHOWN_MAX, "{}", warnings[0].len());
    }
}
