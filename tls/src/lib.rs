//! Who is at the other end of a connection: certificates, keys and proofs, as clients and servers of every component
//! share them.
//!
//! [`server`] makes the TLS side of a server from files and follows them, [`peer`] says whom a client's certificate
//! stands for, [`front_proxy`] whom a proxy speaks for, and [`bounds`] how many may connect.

pub mod bearer;
pub mod bounds;
mod der;
pub mod front_proxy;
pub mod guests;
pub mod keys;
pub mod made;
pub mod peer;
pub mod server;
pub mod signatures;
mod suites;
pub mod trouble;
