//! Options: the option sets of common installers start the server, and each option about serving has its effect.

mod browsers;
mod cluster;
mod elections;
mod gates;
mod set_ups;
mod shown;
mod times;
mod tracing;

use holdfast_tests::{Folder, Server};
use std::path::Path;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn text_of(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn start(options: &[&str]) -> (Folder, Server) {
    let folder = Folder::new();
    let server = Server::start(folder.path(), options);
    (folder, server)
}
