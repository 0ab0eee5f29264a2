//! The order of a merged list: what the patch asks for comes first, the live list decides the rest.
//!
//! Elements that the patch names keep the patch's order, the others keep the live order, and each of the
//! others goes before the first patched element that stood behind it in the live list.

use std::collections::BTreeMap;

use holdfast_value::Value;

use super::{PATCH, bad_directive, fault, no_merge_key};
use crate::Refusal;
use crate::refusal::Merging;

/// Arranges `merged`. Elements found in `named` are the patch's and follow `patch_order`.
pub(super) fn arrange(
    merged: Vec<Value>,
    named: &[Value],
    patch_order: &[Value],
    server_order: &[Value],
    merge_key: Option<&str>,
) -> Vec<Value> {
    let named = places(named, merge_key);
    let patch_places = places(patch_order, merge_key);
    let server_places = places(server_order, merge_key);
    let place_in = |places: &BTreeMap<String, usize>, item: &Value| places.get(&identity(item, merge_key)).copied();

    let (mut patched, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| named.contains_key(&identity(item, merge_key)));
    patched.sort_by_cached_key(|item| place_in(&patch_places, item).unwrap_or(usize::MAX));
    others.sort_by_cached_key(|item| place_in(&server_places, item).unwrap_or(usize::MAX));

    let mut arranged = Vec::with_capacity(patched.len() + others.len());
    let mut patched = patched.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    while let (Some(other), Some(patch)) = (others.peek(), patched.peek()) {
        let other_first = match (place_in(&server_places, other), place_in(&server_places, patch)) {
            (Some(other), Some(patch)) => other < patch,
            _ => false,
        };
        arranged.extend(if other_first { others.next() } else { patched.next() });
    }
    arranged.extend(patched);
    arranged.extend(others);
    arranged
}

/// A `$setElementOrder` list must name every element that the patch sets, in the same order.
pub(super) fn check(patch: &[Value], wanted: &[Value], merge_key: Option<&str>) -> Result<(), Refusal> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut rest = wanted.iter();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        let key = keyed(item, merge_key)?;
        let mut found = false;
        for candidate in rest.by_ref() {
            if keyed(candidate, merge_key)? == key {
                found = true;
                break;
            }
        }
        if !found {
            let shown = |items: &[Value]| super::go_value(&Value::Array(items.to_vec()));
            return Err(fault(Merging::OtherOrder { patch: shown(patch), wanted: shown(wanted) }));
        }
    }
    Ok(())
}

fn keyed<'v>(item: &'v Value, merge_key: Option<&str>) -> Result<&'v Value, Refusal> {
    match (merge_key, item) {
        (None, item) => Ok(item),
        (Some(merge_key), Value::Object(map)) => map.get(merge_key).ok_or_else(|| no_merge_key(map, merge_key)),
        (Some(_), _) => Err(bad_directive("setElementOrder list")),
    }
}

/// Where each element stands, the first of equal ones counting.
fn places(items: &[Value], merge_key: Option<&str>) -> BTreeMap<String, usize> {
    let mut places = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        places.entry(identity(item, merge_key)).or_insert(place);
    }
    places
}

fn identity(item: &Value, merge_key: Option<&str>) -> String {
    match merge_key {
        Some(merge_key) => item.get(merge_key).unwrap_or(&Value::Null).to_string(),
        None => item.to_string(),
    }
}
