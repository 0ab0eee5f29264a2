//! The order of a merged list. The patch's elements follow the order in the patch, and the other elements follow the
//! order of the live list.
//!
//! Each of the other elements is placed before the first patched element that follows it in the live list.

use std::collections::BTreeMap;

use holdfast_value::Value;

use super::{PATCH, bad_directive, fault, no_merge_key};
use crate::Refusal;
use crate::refusal::Merging;

/// Puts the elements of `merged` in order. The elements that `named` contains come from the patch and follow
/// `patch_order`.
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
    // The identity of each element is computed only once, because an element may be large.
    let (mut patched, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        let identity = identity(&item, merge_key);
        let live = server_places.get(&identity).copied();
        match named.contains_key(&identity) {
            true => patched.push((patch_places.get(&identity).copied().unwrap_or(usize::MAX), live, item)),
            false => others.push((live.unwrap_or(usize::MAX), live, item)),
        }
    }
    patched.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(place, ..)| *place);

    let mut arranged = Vec::with_capacity(patched.len() + others.len());
    let mut patched = patched.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    while let (Some((_, other, _)), Some((_, patch, _))) = (others.peek(), patched.peek()) {
        let other_first = matches!((other, patch), (Some(other), Some(patch)) if other < patch);
        arranged.extend(if other_first { others.next() } else { patched.next() });
    }
    arranged.extend(patched);
    arranged.extend(others);
    arranged.into_iter().map(|(_, _, item)| item).collect()
}

/// Checks that a `$setElementOrder` list names every element that the patch sets, in the same order.
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

/// Maps the identity of each element to its index. If elements have the same identity, the first index counts.
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
