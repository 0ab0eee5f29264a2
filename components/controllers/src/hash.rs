//! Hashes of pod templates, which become part of the names of ReplicaSets and ControllerRevisions.

use holdfast_value::Value;

/// The letters and digits of generated names. There are no vowels, so that names contain no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of a template: equal templates have equal hashes. Another value of `collisions` gives another hash, so that
/// callers can avoid a name that another template already has.
pub fn of(template: &Value, collisions: i64) -> String {
    let mut sum = Fnv1a::default();
    sum.add(template.to_string().as_bytes());
    if collisions > 0 {
        sum.add(&collisions.to_le_bytes());
    }
    sum.0.to_string().bytes().map(|digit| ALPHABET[usize::from(digit) % ALPHABET.len()] as char).collect()
}

struct Fnv1a(u32);

impl Default for Fnv1a {
    fn default() -> Fnv1a {
        Fnv1a(0x811c_9dc5)
    }
}

impl Fnv1a {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn a_name_stays_and_collisions_change_it() {
        let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {}});
        assert_eq!(of(&template, 0), "556598c496");
        assert_ne!(of(&template, 1), of(&template, 0));
        assert_ne!(of(&template, 2), of(&template, 1));
    }
}
