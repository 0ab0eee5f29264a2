//! Custom resources from end to end: definitions in the shape of those that are widely used, what happens to their
//! objects while definitions come, change and go, and what holds for any schema.

#[path = "custom_resources/fixtures.rs"]
mod fixtures;
#[path = "custom_resources/lifecycle.rs"]
mod lifecycle;
#[path = "custom_resources/properties.rs"]
mod properties;
#[path = "custom_resources/world.rs"]
mod world;
