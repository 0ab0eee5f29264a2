//! The certificate and the private key of a server whose options name none.

use crate::files::{Readers, WriteMode};
use anyhow::{Result, bail};
use holdfast_files::check;
use holdfast_files::folder::make_private;
use holdfast_tls::generated;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The pair `NAME.crt` and `NAME.key` in a folder. An existing pair is used as it is, if no other user could have
/// written it; otherwise a self-signed pair is made.
pub fn kept_pair(
    folder: &Path,
    name: &str,
    common_name: &str,
    names: &[String],
    addresses: &[IpAddr],
) -> Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    make_private(folder)?;
    check(&certificate)?;
    check(&key)?;
    match (certificate.exists(), key.exists()) {
        (true, true) => {}
        (false, false) => {
            let made = generated::self_signed(common_name, names, addresses)?;
            WriteMode::Synced.file(&key, &made.key, Readers::Owner)?;
            WriteMode::Synced.file(&certificate, &made.certificate, Readers::Everybody)?;
        }
        (has_certificate, _) => {
            let missing = if has_certificate { &key } else { &certificate };
            bail!("{} is missing: a certificate and its key come as a pair", missing.display());
        }
    }
    Ok((certificate, key))
}
