//! Stores equal templates of pods once, and gives each of them a number.

use crate::object::pod::{Pod, Template};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How many templates are found by their address in memory, which is faster than comparing them. Several controllers
/// create pods at the same time, and the pods run on nodes of several zones, so more than one template is recent.
const LAST_MAX: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Templates {
    numbers: HashMap<Arc<Template>, u64>,
    next: u64,
    /// The templates of the pods that were added last. With each comes the shared template that is equal to it, and the
    /// number of the shared template.
    last: VecDeque<(Arc<Template>, Arc<Template>, u64)>,
    sweep_at: usize,
}

impl Templates {
    /// Replaces a pod's template by the shared template that is equal to it, and sets the pod's template number.
    pub fn share(&mut self, pod: &mut Pod) {
        if let Some((_, shared, id)) = self.last.iter().find(|(last, ..)| Arc::ptr_eq(last, &pod.template)) {
            (pod.template, pod.template_id) = (shared.clone(), *id);
            return;
        }
        let last = pod.template.clone();
        self.register(pod);
        self.last.truncate(LAST_MAX - 1);
        self.last.push_front((last, pod.template.clone(), pod.template_id));
    }

    fn register(&mut self, pod: &mut Pod) {
        if let Some((template, id)) = self.numbers.get_key_value(&pod.template) {
            (pod.template, pod.template_id) = (template.clone(), *id);
            return;
        }
        if self.numbers.len() >= self.sweep_at {
            self.numbers.retain(|template, _| Arc::strong_count(template) > 1);
            self.sweep_at = (self.numbers.len() * 2).max(1024);
        }
        self.next += 1;
        pod.template_id = self.next;
        self.numbers.insert(pod.template.clone(), pod.template_id);
    }
}
