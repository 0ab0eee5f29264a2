//! Certificates, keys and proofs of identity, for the clients and servers of every component.
//!
//! [`server`] makes the TLS side of a server from files and reads changed files again, [`peer`] identifies a client by
//! its certificate, [`front_proxy`] reads the user that a proxy names, and [`bounds`] limits connections.

pub mod bearer;
pub mod bounds;
mod der;
pub mod front_proxy;
pub mod generated;
pub mod guests;
pub mod jwt;
pub mod keys;
pub mod peer;
pub mod server;
pub mod signatures;
pub mod suites;
