//! Runs one command with its redirections. The command may be compound, a function, or a program.

use super::{Open, Shell, ShellFuture, ShellOptions, ShellResult, Stop};
use crate::commands;
use crate::files::{self, Trouble, absolute};
use crate::syntax::{Command, CommandKind, List, Redirection, RedirectionTarget, Word};
use std::sync::{Arc, Mutex};

impl Shell {
    pub(super) fn run_command<'a>(&'a mut self, command: &'a Command) -> ShellFuture<'a, ()> {
        Box::pin(async move {
            self.step(1).await?;
            if let CommandKind::Simple { assignments, words } = &command.kind {
                return self.simple(assignments, words, &command.redirections).await;
            }
            if command.redirections.is_empty() {
                return self.compound(&command.kind).await;
            }
            let before = self.open.clone();
            let mut done = Ok(());
            if self.redirect(&command.redirections).await? {
                done = self.compound(&command.kind).await;
            }
            self.open = before;
            done
        })
    }

    async fn compound(&mut self, what: &CommandKind) -> ShellResult<()> {
        match what {
            CommandKind::Simple { .. } => Ok(()),
            CommandKind::Group(list) => self.list(list).await,
            CommandKind::Subshell(list) => {
                let child = self.child();
                let list = list.clone();
                let begun = self.spawn("sh", child, move |mut child| {
                    Box::pin(async move {
                        let done = child.list(&list).await;
                        child.ended(done).await
                    })
                });
                if let Some(pid) = begun.await? {
                    self.status = self.wait_child(pid).await?;
                }
                Ok(())
            }
            CommandKind::If(conditions, otherwise) => {
                for (condition, then) in conditions {
                    if self.holds(condition).await? {
                        return self.list(then).await;
                    }
                }
                self.status = 0;
                match otherwise {
                    Some(otherwise) => self.list(otherwise).await,
                    None => Ok(()),
                }
            }
            CommandKind::While { until, condition, body } => {
                let mut status = 0;
                while self.holds(condition).await? != *until {
                    let done = self.list(body).await;
                    status = self.status;
                    if self.breaks(done)? {
                        break;
                    }
                    self.step(1).await?;
                }
                self.status = status;
                Ok(())
            }
            CommandKind::For { name, words, body } => {
                let words = match words {
                    Some(words) => self.words(words).await?,
                    None => self.arguments.clone(),
                };
                self.status = 0;
                for word in words {
                    self.set(name, word).await?;
                    let done = self.list(body).await;
                    if self.breaks(done)? {
                        break;
                    }
                    self.step(1).await?;
                }
                Ok(())
            }
            CommandKind::Case { word, arms } => {
                let word = self.single(word).await?;
                self.status = 0;
                for (patterns, body) in arms {
                    for pattern in patterns {
                        self.step(1).await?;
                        let pattern = self.pattern(pattern).await?;
                        if crate::pattern::matches(&pattern, &word) {
                            return self.list(body).await;
                        }
                    }
                }
                Ok(())
            }
            CommandKind::Function { name, body } => {
                if self.functions.len() < 256 {
                    self.functions.insert(name.clone(), body.clone());
                }
                self.status = 0;
                Ok(())
            }
        }
    }

    async fn holds(&mut self, condition: &List) -> ShellResult<bool> {
        self.tested += 1;
        self.list(condition).await?;
        self.tested -= 1;
        Ok(self.status == 0)
    }

    /// Handles the end of one run of a loop's body. Returns whether the loop ends.
    fn breaks(&mut self, done: ShellResult<()>) -> ShellResult<bool> {
        match done {
            Ok(()) => Ok(false),
            Err(stop) => {
                let (is_break, count) = match stop {
                    Stop::Break(count) => (true, count),
                    Stop::Continue(count) => (false, count),
                    other => return Err(other),
                };
                match count {
                    0 | 1 => Ok(is_break),
                    count if is_break => Err(Stop::Break(count - 1)),
                    count => Err(Stop::Continue(count - 1)),
                }
            }
        }
    }

    /// Opens the files of redirections. Returns whether all of them could be opened.
    async fn redirect(&mut self, redirections: &[Redirection]) -> ShellResult<bool> {
        for Redirection { number, what } in redirections {
            let opened = match what {
                RedirectionTarget::Read(word) => {
                    let name = self.single(word).await?;
                    self.open_to_read(&name).map_err(|Trouble(why)| format!("can't open {name}: {}", plain(why)))
                }
                RedirectionTarget::Write(word) | RedirectionTarget::Append(word) => {
                    let name = self.single(word).await?;
                    let opened = self.open_to_write(&name, matches!(what, RedirectionTarget::Append(_)));
                    opened.map_err(|Trouble(why)| format!("can't create {name}: {why}"))
                }
                RedirectionTarget::Same(word) => match self.single(word).await?.as_str() {
                    "-" => Ok(Open::Nothing),
                    other => {
                        let open = other.parse().ok().and_then(|number: u8| self.open.get(&number).cloned());
                        open.ok_or_else(|| format!("{other}: Bad file descriptor"))
                    }
                },
                RedirectionTarget::Text(word) => {
                    let text = self.single(word).await?;
                    Ok(Open::Content(Arc::new(Mutex::new((Arc::new(text.into_bytes()), 0)))))
                }
            };
            match opened {
                Ok(open) => _ = self.open.insert(*number, open),
                Err(why) => {
                    let name = self.name.clone();
                    self.complain(&format!("{name}: {why}")).await?;
                    self.status = 1;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn simple(
        &mut self,
        assignments: &[(String, Word)],
        words: &[Word],
        redirections: &[Redirection],
    ) -> ShellResult<()> {
        let status = self.status;
        self.status = 0;
        let words = {
            // While the words of a command are expanded, `$?` is the exit status of the previous command.
            self.status = status;
            let words = self.words(words).await?;
            if words.is_empty() {
                self.status = 0;
            }
            words
        };
        let before = (!redirections.is_empty()).then(|| self.open.clone());
        if !self.redirect(redirections).await? {
            self.open = before.unwrap_or_default();
            return Ok(());
        }
        let mut hidden = Vec::new();
        for (name, word) in assignments {
            let value = self.single(word).await?;
            if words.is_empty() {
                self.set(name, value).await?;
            } else {
                hidden.push((name.clone(), self.variables.get(name).cloned()));
                self.set(name, value).await?;
                if let Some(variable) = self.variables.get_mut(name) {
                    variable.is_exported = true;
                }
            }
        }
        let mut keeps_open = false;
        let mut done = Ok(());
        if let Some(first) = words.first() {
            keeps_open = first == "exec" && words.len() == 1;
            if self.options.shows_commands {
                self.complain(&format!("+ {}", words.join(" "))).await?;
            }
            done = self.invoke(words).await;
        }
        for (name, known) in hidden {
            match known {
                Some(known) => _ = self.variables.insert(name, known),
                None => self.unset(&name),
            }
        }
        if let Some(before) = before.filter(|_| !keeps_open) {
            self.open = before;
        }
        done
    }

    /// Runs words as a function, a built-in command, or a program.
    pub fn invoke(&mut self, words: Vec<String>) -> ShellFuture<'_, ()> {
        Box::pin(async move {
            self.step(1).await?;
            let Some(first) = words.first() else { return Ok(()) };
            if let Some(function) = self.functions.get(first).cloned() {
                return self.call(&function, words).await;
            }
            self.program(words).await
        })
    }

    /// Runs words as a command that is not a function.
    pub async fn program(&mut self, words: Vec<String>) -> ShellResult<()> {
        let Some(first) = words.first().cloned() else { return Ok(()) };
        let name = commands::name_of(&first);
        if commands::is_known(name) {
            self.status = commands::run(self, name, &words).await?;
            return Ok(());
        }
        if first.contains('/') {
            let path = absolute(&self.folder, &first);
            let found = self.shared.lock().files.entry(&path);
            if let Some(files::TreeEntry { content: Some(content), mode, .. }) = found {
                if mode & 0o111 == 0 {
                    self.complain(&format!("sh: {first}: Permission denied")).await?;
                    self.status = 126;
                    return Ok(());
                }
                if !content.starts_with(b"\x7fELF") {
                    let text = String::from_utf8_lossy(&content).into_owned();
                    let arguments = words[1..].to_vec();
                    self.status = self.as_program(first, arguments, &text).await?;
                    return Ok(());
                }
            }
        }
        if !self.shared.fails_unknown(self.pid, &first) {
            // The behaviour of the program is unknown, so the process sleeps until it is killed.
            return std::future::pending().await;
        }
        self.complain(&format!("sh: {first}: not found")).await?;
        self.status = 127;
        Ok(())
    }

    /// Runs a script as a program of its own, which sees only the exported variables.
    pub async fn as_program(&mut self, name: String, arguments: Vec<String>, text: &str) -> ShellResult<i32> {
        let mut child = self.program_shell(name, arguments);
        let done = child.text(text).await;
        self.finish(child, done).await
    }

    pub fn program_shell(&self, name: String, arguments: Vec<String>) -> Shell {
        let mut child = self.clone();
        child.variables.retain(|_, variable| variable.is_exported);
        child.functions.clear();
        child.traps.clear();
        child.caught.clear();
        child.hidden.clear();
        child.background.clear();
        child.options = ShellOptions::default();
        child.tested = 0;
        child.status = 0;
        child.is_interactive = false;
        (child.name, child.arguments) = (name, arguments);
        child
    }

    /// Takes over the exit status of a program that ran within this process.
    pub async fn finish(&mut self, mut child: Shell, done: ShellResult<()>) -> ShellResult<i32> {
        if let Err(stop @ Stop::Killed(_)) = done {
            return Err(stop);
        }
        let code = child.ended(done).await;
        Ok(code)
    }

    async fn call(&mut self, function: &Arc<Command>, words: Vec<String>) -> ShellResult<()> {
        let arguments = std::mem::replace(&mut self.arguments, words[1..].to_vec());
        self.hidden.push(Vec::new());
        let done = self.run_command(function).await;
        for (name, known) in self.hidden.pop().unwrap_or_default().into_iter().rev() {
            match known {
                Some(known) => _ = self.variables.insert(name, known),
                None => self.unset(&name),
            }
        }
        self.arguments = arguments;
        match done {
            Err(Stop::Return) => Ok(()),
            done => done,
        }
    }
}

/// The wording in which shells report a file error.
fn plain(why: &str) -> &str {
    match why {
        "No such file or directory" => "no such file",
        why => why,
    }
}
