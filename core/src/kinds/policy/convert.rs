//! Conversion of disruption budgets. An empty selector of a `v1beta1` budget matches no pod; in `v1` it matches every
//! pod of the namespace.

use crate::kinds::Convert;
use crate::kinds::convert::{Fields, within};
use holdfast_value::{Value, json};

pub const EMPTY_SELECTOR: Convert = Convert { to_hub, from_hub };

/// No pod has this label. Selectors on this label mean "all pods" or "no pods" in the version where `{}` means the
/// opposite.
const NEVER_SET: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";

fn to_hub(budget: &mut Fields) {
    swap(budget, &selects_none(), &selects_all());
}

fn from_hub(budget: &mut Fields) {
    swap(budget, &selects_all(), &selects_none());
}

/// Replaces `{}` by `meaning`, the selector with the same meaning in the other version. A selector that equals
/// `other_meaning` becomes `{}`.
fn swap(budget: &mut Fields, meaning: &Value, other_meaning: &Value) {
    let Some(selector) = within(budget, &["spec"]).and_then(|spec| spec.get_mut("selector")) else { return };
    if *selector == json!({}) {
        *selector = meaning.clone();
    } else if selector == other_meaning {
        *selector = json!({});
    }
}

fn selects_none() -> Value {
    json!({ "matchExpressions": [{ "key": NEVER_SET, "operator": "Exists" }] })
}

fn selects_all() -> Value {
    json!({ "matchExpressions": [{ "key": NEVER_SET, "operator": "DoesNotExist" }] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::check_both_ways;

    #[test]
    fn an_empty_selector_keeps_its_meaning() {
        let budget = |selector: Value| json!({ "spec": { "selector": selector } });
        let labels = json!({ "matchLabels": { "app": "web" } });
        check_both_ways(EMPTY_SELECTOR, &budget(json!({})), &budget(selects_none()));
        check_both_ways(EMPTY_SELECTOR, &budget(selects_all()), &budget(json!({})));
        check_both_ways(EMPTY_SELECTOR, &budget(labels.clone()), &budget(labels));
    }
}
