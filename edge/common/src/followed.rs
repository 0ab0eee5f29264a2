//! Configuration files that are read again while the server runs.

use crate::Reloads;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A configuration file, its content in effect, and the metrics of its reloads.
pub struct Followed {
    /// Names the file's content in log lines.
    name: &'static str,
    file: PathBuf,
    /// The text that was read last; `None` if the file could not be read.
    text: Option<String>,
    /// The time between two reads of the file.
    period: Duration,
    reloads: Reloads,
}

impl Followed {
    /// `text` is the content of the file that is in effect.
    pub fn new(name: &'static str, file: PathBuf, text: String, period: Duration, reloads: Reloads) -> Followed {
        reloads.configured(&text);
        Followed { name, file, text: Some(text), period, reloads }
    }

    /// Waits until the file has a new content. The caller applies the content, and reports the result to
    /// [`Followed::applied`].
    pub async fn changed(&mut self) -> String {
        loop {
            tokio::time::sleep(self.period).await;
            if let Some(text) = self.compare(tokio::fs::read_to_string(&self.file).await) {
                return text;
            }
        }
    }

    /// The content of the file, if it differs from the last content. An unreadable file is reported once; after that
    /// report, any content counts as new.
    fn compare(&mut self, read: io::Result<String>) -> Option<String> {
        match read {
            Ok(now) if self.text.as_ref() == Some(&now) => None,
            Ok(now) => {
                self.text = Some(now.clone());
                Some(now)
            }
            Err(error) => {
                if self.text.take().is_some() {
                    self.report(&Err(error.to_string()));
                }
                None
            }
        }
    }

    /// Records whether the new content is in effect. After an error the old content stays in effect.
    pub fn applied(&self, outcome: &Result<(), String>) {
        self.report(outcome);
        if let (Ok(()), Some(text)) = (outcome, &self.text) {
            self.reloads.configured(text);
        }
    }

    fn report(&self, outcome: &Result<(), String>) {
        self.reloads.reloaded(outcome);
        let (name, file) = (self.name, self.file.display());
        match outcome {
            Ok(()) => tracing::info!(%file, "reloaded the {name}"),
            Err(why) => tracing::error!(%file, why, "the {name} cannot be reloaded: the old one stays"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_new_once_and_a_missing_file_is_reported_once() {
        let reloads = Reloads::default();
        let period = Duration::from_secs(1);
        let mut followed = Followed::new("configuration", "f".into(), "a".into(), period, reloads.clone());
        let missing = || Err(io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(followed.compare(Ok("a".into())), None);
        assert_eq!(followed.compare(Ok("b".into())), Some("b".into()));
        followed.applied(&Err("it is wrong".into()));
        assert_eq!((followed.compare(Ok("b".into())), reloads.trouble().check()), (None, Err("it is wrong".into())));
        assert_eq!((followed.compare(missing()), followed.compare(missing())), (None, None));
        assert_eq!(reloads.failures(), 2, "a wrong content and a missing file");
        assert_eq!(followed.compare(Ok("b".into())), Some("b".into()));
        followed.applied(&Ok(()));
        assert_eq!(reloads.trouble().check(), Ok(()));
        assert_eq!(followed.compare(missing()), None);
        assert_eq!(reloads.failures(), 3);
    }
}
