//! Disruption budgets have no defaults.

use crate::schema::defaults::Rule;

pub fn rules() -> Vec<Rule> {
    Vec::new()
}
