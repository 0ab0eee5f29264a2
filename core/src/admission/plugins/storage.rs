//! StorageObjectInUseProtection, DefaultStorageClass and PersistentVolumeClaimResize.

use super::pods::{annotation, has_annotation};
use crate::admission::{Attributes, Operation};
use crate::kinds::known::{PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, VOLUME_ATTRIBUTES_CLASS};
use crate::object::meta::{self, object_mut};
use crate::pipeline::effect::Stop;
use crate::schema::quantity;
use holdfast_value::Value;
use std::cmp::Ordering;

/// StorageObjectInUseProtection: adds to new volumes, claims and VolumeAttributesClasses the finalizer that delays
/// their deletion while they are in use.
pub(super) fn protect(attributes: &mut Attributes) -> Result<(), Stop> {
    if attributes.operation != Operation::Create {
        return Ok(());
    }
    let protected = [
        (PERSISTENT_VOLUME, "kubernetes.io/pv-protection"),
        (PERSISTENT_VOLUME_CLAIM, "kubernetes.io/pvc-protection"),
        (VOLUME_ATTRIBUTES_CLASS, "kubernetes.io/vac-protection"),
    ];
    let Some((_, finalizer)) = protected.into_iter().find(|(known, _)| attributes.is_of(*known)) else {
        return Ok(());
    };
    let mut finalizers: Vec<String> = meta::finalizers(attributes.fields()).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|present| present == finalizer) {
        finalizers.push(finalizer.to_owned());
        meta::set_finalizers(attributes.fields_mut(), finalizers);
    }
    Ok(())
}

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// DefaultStorageClass: gives a new claim without a storage class the newest of the default StorageClasses.
pub(super) fn default_class(attributes: &mut Attributes) -> Result<(), Stop> {
    let claim = &attributes.object;
    if !attributes.creates(PERSISTENT_VOLUME_CLAIM)
        || has_annotation(claim, CLASS_ANNOTATION)
        || claim["spec"]["storageClassName"].is_string()
    {
        return Ok(());
    }
    let keys = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    if let Some(name) = newest_marked(attributes.all_with(STORAGE_CLASS, "is-default-class"), &keys) {
        object_mut(attributes.fields_mut(), "spec").insert("storageClassName", name.into());
    }
    Ok(())
}

/// The name of the newest object that one of these annotations marks. Of several objects that were created in the same
/// second, the first by name counts.
pub(super) fn newest_marked(objects: Vec<Value>, keys: &[&str]) -> Option<String> {
    let is_marked = |object: &Value| keys.iter().any(|key| annotation(object, key) == Some("true"));
    let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or("").to_owned();
    let marked = objects.into_iter().filter(is_marked);
    let newest = marked.min_by(|a, b| {
        let by_time = text(b, "creationTimestamp").cmp(&text(a, "creationTimestamp"));
        by_time.then_with(|| text(a, "name").cmp(&text(b, "name")))
    });
    newest.map(|object| text(&object, "name"))
}

/// PersistentVolumeClaimResize: refuses a larger storage request unless the claim is bound and its StorageClass allows
/// expansion.
pub(super) fn resize(attributes: &mut Attributes) -> Result<(), Stop> {
    if !attributes.updates(PERSISTENT_VOLUME_CLAIM) {
        return Ok(());
    }
    let (new, old) = (&attributes.object, attributes.old);
    let size = |claim: &Value| claim["spec"]["resources"]["requests"]["storage"].as_str().unwrap_or("0").to_owned();
    if quantity::compare(&size(new), &size(old)) != Some(Ordering::Greater) {
        return Ok(());
    }
    if old["status"]["phase"] != "Bound" {
        return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
    }
    let class = class_of(new).filter(|class| Some(*class) == class_of(old));
    let class = class.and_then(|class| attributes.find(STORAGE_CLASS, "", class));
    if class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    Err(attributes.forbidden(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    ))
}

fn class_of(claim: &Value) -> Option<&str> {
    let said = annotation(claim, CLASS_ANNOTATION).or_else(|| claim["spec"]["storageClassName"].as_str());
    said.filter(|class| !class.is_empty())
}
