//! Files and folders that no other user of the machine can read, change or prepare.
//!
//! Start at [`resolve`]: it resolves a path from the root of the file system, one name at a time, and follows no link
//! that another user has made. [`file`] writes and opens files and makes sockets; [`folder`] makes folders. A refusal
//! names the file, its owner and a way to solve the problem. [`trouble`] is the error of a file that the server reads
//! again while it runs.

pub mod file;
pub mod folder;
pub mod resolve;
pub mod trouble;

pub use resolve::{check, check_owner, check_place, check_socket, complaint};
