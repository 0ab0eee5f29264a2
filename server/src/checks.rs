//! Health checks of files that the server reads again while it runs. A check fails while a file on disk is not valid:
//! the server continues with the content that it read before, but could not start with the file.

use futures_util::future::{BoxFuture, FutureExt, ready};
use holdfast_edge::Trouble;
use holdfast_transport_http::HealthCheck;
use std::sync::Arc;

struct Followed {
    name: &'static str,
    trouble: Trouble,
}

impl HealthCheck for Followed {
    fn name(&self) -> &str {
        self.name
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        let told = |why| format!("the files cannot be reloaded, and what they said before goes on: {why}");
        ready(self.trouble.check().map_err(told)).boxed()
    }
}

/// A health check of a file that an option names; the check has the option's name.
pub fn of_files(name: &'static str, trouble: Trouble) -> Arc<dyn HealthCheck> {
    Arc::new(Followed { name, trouble })
}
