//! The door over a log in memory: what every call goes through, whoever makes it.

mod faults;
mod history;
mod housekeeping;
mod people;
mod sharing;
mod turns;
