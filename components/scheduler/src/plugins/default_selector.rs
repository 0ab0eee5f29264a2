//! The default selector for spreading: pods belong together if they are selected by the same Services and by the same
//! owner.

use crate::object::labels::Labels;
use crate::object::pod::{Controller, Template};
use crate::object::selector::Selector;
use crate::object::{Key, Kind, Text};
use crate::snapshot::PodSelectors;

/// The selector of the pods that belong together with a template's pods. The selector selects every pod if no Service
/// or owner selects the template's pods.
pub fn default_selector(selectors: &PodSelectors, template: &Template) -> Selector {
    let mut labels: Vec<(Text, Text)> = Vec::new();
    let mut add = |more: &Labels| labels.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    for service in selectors.services(&template.namespace) {
        if let Some(selector) = service.labels.as_ref().filter(|own| own.is_subset_of(&template.labels)) {
            add(selector);
        }
    }
    let mut selector = None;
    if let Some(controller) = &template.controller {
        let key = Key { namespace: template.namespace.clone(), name: controller.name.clone() };
        if let Some(owner) = controller.kind().and_then(|kind| selectors.controller(kind, &key)) {
            owner.labels.iter().for_each(&mut add);
            selector = Some(&owner.selector).filter(|selector| !selector.is_nothing());
        }
    }
    let labels = Selector::of_labels(&labels.into_iter().collect());
    match selector {
        Some(selector) => labels.and(selector),
        None => labels,
    }
}

/// Whether a change of this object may change the selector for pods of a template.
pub fn depends_on(template: &Template, kind: Kind, key: &Key) -> bool {
    let is_owner = |own: &Controller| own.kind() == Some(kind) && own.name == key.name;
    key.namespace == template.namespace && (kind == Kind::Service || template.controller.as_ref().is_some_and(is_owner))
}
