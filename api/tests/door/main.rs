//! The service over a log in memory: the layers that every call passes.

mod faults;
mod history;
mod housekeeping;
mod people;
mod sharing;
mod turns;
