//! Connections to nodes: logs, commands in containers, port forwarding and proxies, by two versions of kubectl and over
//! both protocols; and targets that must not be reached.

mod cluster;
mod logs;
mod many;
mod proxies;
mod refusals;
mod streams;
