//! Tests the layers that every call passes, in a service over a log in memory.

mod faults;
mod history;
mod housekeeping;
mod people;
mod sharing;
mod turns;
