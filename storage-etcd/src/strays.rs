//! Values under the prefix that belong to no object that a server of this release can serve. Such values are not
//! changed, and do not appear in answers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The maximum number of places that appear in the server's log.
const NAMED_MAX: usize = 1_000;
/// The maximum number of bytes of a key that the server's log shows.
const SHOWN_MAX: usize = 512;

/// The reason why a key belongs to no object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stray {
    /// The key has too many or too few parts for its kind.
    Depth,
    /// No kind of this release is stored at this key.
    Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeftOut {
    cause: &'static str,
}

/// Counts the values that belong to no object, and logs each place of such values once.
pub struct Strays {
    /// The logged places: keys, or the prefixes of unknown kinds.
    named: Mutex<BTreeSet<String>>,
    received: Family<LeftOut, Counter>,
    registry: Registry,
}

impl Default for Strays {
    fn default() -> Strays {
        let (received, mut registry) = (Family::<LeftOut, Counter>::default(), Registry::default());
        let help = "Values received from etcd that are left out, because their keys are of no object";
        registry.register("holdfast_etcd_left_out_values", help, received.clone());
        Strays { named: Mutex::default(), received, registry }
    }
}

impl Strays {
    /// Counts a value that was received under a key that belongs to no object. `root` is the prefix of all keys.
    pub fn note(&self, root: &str, key: &[u8], stray: Stray) {
        let cause = if stray == Stray::Depth { "depth" } else { "kind" };
        self.received.get_or_create(&LeftOut { cause }).inc();
        let text = String::from_utf8_lossy(&key[..key.len().min(SHOWN_MAX)]).into_owned();
        let place = match stray {
            Stray::Depth => text,
            Stray::Kind => prefix(root, text),
        };
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() > NAMED_MAX || !named.insert(place.clone()) {
            return;
        }
        let (count, shown) = (named.len(), holdfast_core::visible::line(&place).into_owned());
        drop(named);
        match stray {
            _ if count > NAMED_MAX => {
                tracing::error!("more than {NAMED_MAX} places in etcd are left out; the others are not named");
            }
            Stray::Depth => {
                tracing::error!("{shown} is no key of an object of its kind: it is left out, and stays as it is")
            }
            Stray::Kind => {
                tracing::warn!(
                    "{shown} in etcd is of no kind that this release knows: it is left out, and stays as it is"
                );
            }
        }
    }

    /// The metrics as text, without the final line `# EOF`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode_registry(&mut text, &self.registry);
        text
    }
}

/// The beginning of a key up to the slash after the first part below the root, such as `/registry/workloads/`; the whole
/// key if there is no such slash.
fn prefix(root: &str, mut key: String) -> String {
    let behind = key.strip_prefix(root).unwrap_or_default();
    let end = behind.find('/').map_or(key.len(), |slash| key.len() - behind.len() + slash + 1);
    key.truncate(end);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(strays: &Strays) -> Vec<String> {
        strays.named.lock().expect("no panic").iter().cloned().collect()
    }

    #[test]
    fn each_place_is_named_once_and_each_value_counts() {
        let strays = Strays::default();
        for (key, stray) in [
            ("/registry/pods/x", Stray::Depth),
            ("/registry/pods/x", Stray::Depth),
            ("/registry/example.com/things/a/b/c", Stray::Depth),
            ("/registry/workloads/a/b", Stray::Kind),
            ("/registry/workloads/a/c", Stray::Kind),
            ("/registry/stuff", Stray::Kind),
        ] {
            strays.note("/registry/", key.as_bytes(), stray);
        }
        let expected =
            ["/registry/example.com/things/a/b/c", "/registry/pods/x", "/registry/stuff", "/registry/workloads/"];
        assert_eq!(named(&strays), expected);
        let text = strays.text();
        assert!(text.contains("holdfast_etcd_left_out_values_total{cause=\"depth\"} 3\n"), "{text}");
        assert!(text.contains("holdfast_etcd_left_out_values_total{cause=\"kind\"} 3\n"), "{text}");
    }

    #[test]
    fn many_places_take_no_more_room() {
        let strays = Strays::default();
        (0..5 * NAMED_MAX).for_each(|nth| strays.note("/", format!("/pods/{nth}").as_bytes(), Stray::Depth));
        assert_eq!(named(&strays).len(), NAMED_MAX + 1);
        strays.note("/", &[0xff; 1 << 20], Stray::Kind);
        assert!(strays.text().contains("{cause=\"kind\"} 1\n"));
    }
}
