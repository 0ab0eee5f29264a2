//! Custom resources from end to end: definitions in forms that are widely used, their objects while the definitions are
//! created, changed and deleted, and properties that hold for any schema.

#[path = "custom_resources/caches.rs"]
mod caches;
#[path = "custom_resources/fixtures.rs"]
mod fixtures;
#[path = "custom_resources/lifecycle.rs"]
mod lifecycle;
#[path = "custom_resources/properties.rs"]
mod properties;
#[path = "custom_resources/world.rs"]
mod world;
