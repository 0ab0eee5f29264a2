//! Custom resources from end to end: widely used forms of definitions, their objects while definitions are created,
//! changed and deleted, and properties of any schema.

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
