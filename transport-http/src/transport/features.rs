//! The features of the API over HTTP that feature gates turn on or off.

/// The features of the API that feature gates turn on or off.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    pub list_chunking: bool,
    pub response_compression: bool,
    pub dry_run: bool,
    pub remaining_item_count: bool,
    pub server_side_apply: bool,
    /// Whether objects and lists are sent with a `selfLink`.
    pub self_links: bool,
    /// Whether there are verbs that allow impersonation only for some requests.
    pub constrained_impersonation: bool,
    /// Whether the response to an unauthenticated request over HTTP/2 ends the connection.
    pub unauthenticated_http2_dos_mitigation: bool,
    /// Whether watches may begin with the current objects.
    pub watch_list: bool,
}

impl Default for Features {
    fn default() -> Self {
        Features {
            list_chunking: true,
            response_compression: true,
            dry_run: true,
            remaining_item_count: true,
            server_side_apply: true,
            self_links: false,
            constrained_impersonation: false,
            unauthenticated_http2_dos_mitigation: true,
            watch_list: true,
        }
    }
}
