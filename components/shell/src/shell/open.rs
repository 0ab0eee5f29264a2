//! The input and output of a process.

use super::{CHUNK_BYTES, Open, Shell, ShellResult, Stop, WHOLE_BYTES_MAX};
use crate::files::{Trouble, absolute};
use crate::pipe::ReadResult;
use crate::system::Signal;
use std::sync::{Arc, Mutex, PoisonError};

impl Shell {
    pub async fn put(&mut self, number: u8, bytes: &[u8]) -> ShellResult<()> {
        self.step(1 + bytes.len() as u64 / 512).await?;
        match self.open.get(&number).cloned() {
            Some(Open::Writer(writer)) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let put = self
                        .wait_for(|_| writer.put(rest).map_or(Some(None), |count| (count > 0).then_some(Some(count))));
                    match put.await? {
                        Some(Some(count)) => rest = &rest[count..],
                        Some(None) => return Err(Stop::Killed(Signal::Pipe)),
                        // A signal that has a trap has arrived. Only the first such signal is kept, and if bytes are
                        // left, they are not written.
                        None => self.caught.truncate(1),
                    }
                    if !self.caught.is_empty() && !rest.is_empty() {
                        return Ok(());
                    }
                }
            }
            Some(Open::File(path)) => {
                let wrote = {
                    let mut system = self.shared.lock();
                    let now_ms = system.now_ms;
                    system.files.append(&path, bytes, now_ms)
                };
                if let Err(Trouble(why)) = wrote {
                    self.status = 1;
                    if number != 2 {
                        let text = format!("sh: write error: {why}\n");
                        return Box::pin(self.put(2, text.as_bytes())).await;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub async fn print(&mut self, text: &str) -> ShellResult<()> {
        self.put(1, text.as_bytes()).await
    }

    pub async fn complain(&mut self, text: &str) -> ShellResult<()> {
        self.put(2, format!("{text}\n").as_bytes()).await
    }

    pub fn input(&self) -> Open {
        self.open.get(&0).cloned().unwrap_or(Open::Nothing)
    }

    /// Reads some bytes of an open file; `None` at the end of the file.
    pub async fn take(&mut self, from: &Open, line: bool) -> ShellResult<Option<Vec<u8>>> {
        let taken = match from {
            Open::Content(content) => {
                let mut content = content.lock().unwrap_or_else(PoisonError::into_inner);
                let (bytes, at) = &mut *content;
                let mut end = bytes.len().min(*at + CHUNK_BYTES);
                if line && let Some(length) = bytes[*at..end].iter().position(|byte| *byte == b'\n') {
                    end = *at + length + 1;
                }
                let chunk = bytes[*at..end].to_vec();
                *at = end;
                (!chunk.is_empty()).then_some(chunk)
            }
            Open::Reader(reader) => {
                let found = self.wait_for(|_| match reader.take(CHUNK_BYTES, line) {
                    ReadResult::NothingYet => None,
                    ReadResult::End => Some(None),
                    ReadResult::Bytes(bytes) => Some(Some(bytes)),
                });
                found.await?.flatten()
            }
            _ => None,
        };
        self.step(1 + taken.as_ref().map_or(0, |bytes| bytes.len() as u64 / 512)).await?;
        Ok(taken)
    }

    /// Reads one line with its line break. The last line may have no line break. `None` at the end of the file.
    pub async fn line(&mut self, from: &Open) -> ShellResult<Option<Vec<u8>>> {
        let mut line: Vec<u8> = Vec::new();
        while let Some(more) = self.take(from, true).await? {
            line.extend(more);
            if line.last() == Some(&b'\n') || line.len() > WHOLE_BYTES_MAX {
                break;
            }
        }
        Ok((!line.is_empty()).then_some(line))
    }

    /// Reads an open file to its end, up to the limit [`WHOLE_BYTES_MAX`].
    pub async fn whole(&mut self, from: &Open) -> ShellResult<Vec<u8>> {
        let mut whole: Vec<u8> = Vec::new();
        while let Some(more) = self.take(from, false).await? {
            whole.extend(more);
            if whole.len() > WHOLE_BYTES_MAX {
                self.complain("sh: input is too long").await?;
                return Err(Stop::Exit(2));
            }
        }
        Ok(whole)
    }

    /// Opens a file for reading. The name `-` stands for the standard input.
    pub fn open_to_read(&self, name: &str) -> Result<Open, Trouble> {
        let device = |number: u8| self.open.get(&number).cloned().unwrap_or(Open::Nothing);
        match name {
            "-" | "/dev/stdin" => return Ok(self.input()),
            "/dev/null" | "/dev/tty" => return Ok(Open::Nothing),
            "/dev/stdout" => return Ok(device(1)),
            _ => {}
        }
        let content = self.shared.lock().files.read(&absolute(&self.folder, name))?;
        Ok(Open::Content(Arc::new(Mutex::new((content, 0)))))
    }

    pub fn open_to_write(&self, name: &str, appends: bool) -> Result<Open, Trouble> {
        let device = |number: u8| self.open.get(&number).cloned().unwrap_or(Open::Nothing);
        let log = || self.shared.lock().log.clone();
        match name {
            "/dev/null" => return Ok(Open::Nothing),
            "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" | "/dev/tty" => return Ok(device(1)),
            "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => return Ok(device(2)),
            "/proc/1/fd/1" => return Ok(log().map_or(Open::Nothing, |(output, _)| Open::Writer(output))),
            "/proc/1/fd/2" => return Ok(log().map_or(Open::Nothing, |(_, errors)| Open::Writer(errors))),
            _ => {}
        }
        let path = absolute(&self.folder, name);
        let mut system = self.shared.lock();
        let now_ms = system.now_ms;
        if appends {
            system.files.append(&path, b"", now_ms)?;
        } else {
            system.files.write(&path, Vec::new(), now_ms)?;
        }
        Ok(Open::File(path))
    }
}
