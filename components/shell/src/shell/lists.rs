//! Runs lists of pipelines, and starts the processes for them.

use super::{DEPTH_MAX, Open, Shell, ShellFuture, ShellResult, Stop, code_of};
use crate::parse::{self, Fault};
use crate::pipe::{PipeReader, pipe};
use crate::syntax::{Chain, Command, List, Pipeline};
use crate::system::{Pid, Signal};
use std::pin::Pin;
use std::sync::Arc;

impl Shell {
    /// Runs the text of a script in this shell.
    pub fn text<'a>(&'a mut self, text: &'a str) -> ShellFuture<'a, ()> {
        Box::pin(async move {
            match parse::script(text) {
                Ok(list) => self.list(&list).await,
                Err(fault) => {
                    let why = match fault {
                        Fault::Incomplete => "syntax error: unexpected end of file".to_owned(),
                        Fault::Syntax(why) => why,
                    };
                    let name = self.name.clone();
                    self.complain(&format!("{name}: {why}")).await?;
                    self.status = 2;
                    Err(Stop::Exit(2))
                }
            }
        })
    }

    /// Runs the commands in the shell's input. Each runs as soon as its text is complete.
    pub async fn typed(&mut self) -> ShellResult<()> {
        let input = self.input();
        self.is_interactive = self.is_terminal;
        let mut text = String::new();
        loop {
            if self.is_interactive {
                let (folder, sign) = (self.folder.clone(), if self.user == 0 { '#' } else { '$' });
                let prompt = if text.is_empty() { format!("{folder} {sign} ") } else { "> ".to_owned() };
                self.put(2, prompt.as_bytes()).await?;
            }
            let line = match self.line(&input).await {
                Err(Stop::Killed(Signal::Int)) if self.is_interactive => {
                    text.clear();
                    continue;
                }
                line => line?,
            };
            let is_end = line.is_none();
            text.push_str(&String::from_utf8_lossy(&line.unwrap_or_default()));
            match parse::script(&text) {
                Err(Fault::Incomplete) if !is_end => continue,
                Ok(list) => {
                    text.clear();
                    match self.list(&list).await {
                        Err(Stop::Killed(Signal::Int)) if self.is_interactive => self.status = 130,
                        done => done?,
                    }
                }
                Err(_) if self.is_interactive => {
                    let wrong = std::mem::take(&mut text);
                    let _ = self.text(&wrong).await;
                }
                Err(_) => return self.text(&text).await,
            }
            if is_end {
                return Ok(());
            }
        }
    }

    pub fn list<'a>(&'a mut self, list: &'a List) -> ShellFuture<'a, ()> {
        Box::pin(async move {
            if self.depth >= DEPTH_MAX {
                self.complain("sh: commands run too deeply in each other").await?;
                return Err(Stop::Exit(2));
            }
            let (depth, tested) = (self.depth, self.tested);
            self.depth += 1;
            let mut done = Ok(());
            for chain in list.iter() {
                done = self.chain(chain).await;
                if done.is_ok() {
                    done = self.run_traps().await;
                }
                if done.is_err() {
                    break;
                }
            }
            (self.depth, self.tested) = (depth, tested);
            done
        })
    }

    async fn chain(&mut self, chain: &Chain) -> ShellResult<()> {
        if chain.in_background {
            let chain = Chain { in_background: false, ..chain.clone() };
            let mut child = self.child();
            child.open.insert(0, Open::Nothing);
            if let Some(pid) = self
                .spawn("sh", child, move |mut child| {
                    Box::pin(async move {
                        let list = Arc::new(vec![chain]);
                        let done = child.list(&list).await;
                        child.ended(done).await
                    })
                })
                .await?
            {
                self.background.push(pid);
                self.last_background = pid;
            }
            return Ok(());
        }
        let last = chain.rest.len();
        let mut is_last = last == 0;
        self.tested += u32::from(last > 0);
        self.pipeline(&chain.first).await?;
        self.tested -= u32::from(last > 0);
        for (at, (and, pipeline)) in chain.rest.iter().enumerate() {
            if (self.status == 0) == *and {
                is_last = at + 1 == last;
                self.tested += u32::from(!is_last);
                self.pipeline(pipeline).await?;
                self.tested -= u32::from(!is_last);
            } else {
                is_last = false;
            }
        }
        let negated = match chain.rest.last() {
            Some((_, pipeline)) => pipeline.is_negated,
            None => chain.first.is_negated,
        };
        if self.status != 0 && self.options.ends_at_error && self.tested == 0 && is_last && !negated {
            return Err(Stop::Exit(self.status));
        }
        Ok(())
    }

    async fn pipeline(&mut self, pipeline: &Pipeline) -> ShellResult<()> {
        self.tested += u32::from(pipeline.is_negated);
        match &pipeline.commands[..] {
            [command] => self.run_command(command).await?,
            commands => self.piped(commands).await?,
        }
        if pipeline.is_negated {
            self.tested -= 1;
            self.status = i32::from(self.status == 0);
        }
        Ok(())
    }

    async fn piped(&mut self, commands: &[Arc<Command>]) -> ShellResult<()> {
        let mut input: Option<PipeReader> = None;
        let mut pids = Vec::new();
        for (at, command) in commands.iter().enumerate() {
            let mut child = self.child();
            if let Some(input) = input.take() {
                child.open.insert(0, Open::Reader(input));
            }
            if at + 1 < commands.len() {
                let (writer, reader) = pipe();
                child.open.insert(1, Open::Writer(writer));
                input = Some(reader);
            }
            let command = command.clone();
            let begun = self.spawn("sh", child, move |mut child| {
                Box::pin(async move {
                    let done = child.run_command(&command).await;
                    child.ended(done).await
                })
            });
            pids.extend(begun.await?);
        }
        let mut status = 0;
        for pid in pids {
            let code = self.wait_child(pid).await?;
            status = if self.options.whole_pipes && code == 0 { status } else { code };
        }
        self.status = status;
        Ok(())
    }

    /// A copy of this shell for a subshell.
    pub fn child(&self) -> Shell {
        let mut child = self.clone();
        child.traps.clear();
        child.caught.clear();
        child.background.clear();
        child.is_interactive = false;
        child.hidden.clear();
        child
    }

    /// Runs a child shell as a process of its own.
    pub async fn spawn(
        &mut self,
        words: &str,
        mut child: Shell,
        life: impl FnOnce(Shell) -> Pin<Box<dyn Future<Output = i32> + Send>>,
    ) -> ShellResult<Option<Pid>> {
        self.step(1).await?;
        let begun = self.shared.clone().begin(self.pid, words, |pid| {
            child.pid = pid;
            life(child)
        });
        if begun.is_none() {
            self.complain("sh: can't fork: Resource temporarily unavailable").await?;
            self.status = 2;
        }
        Ok(begun)
    }

    /// The exit status of a child that has ended.
    pub async fn ended(&mut self, done: ShellResult<()>) -> i32 {
        if let Err(stop) = &done {
            match stop {
                Stop::Exit(_) | Stop::Killed(_) => self.status = code_of(stop),
                _ => {}
            }
        }
        if !matches!(done, Err(Stop::Killed(_))) {
            self.at_exit().await;
        }
        self.status
    }

    /// The output of a script, without line breaks at its end.
    pub async fn output_of(&mut self, script: &List) -> ShellResult<String> {
        let (writer, reader) = pipe();
        let mut child = self.child();
        child.open.insert(1, Open::Writer(writer));
        let script = script.clone();
        let begun = self.spawn("sh", child, move |mut child| {
            Box::pin(async move {
                let done = child.list(&script).await;
                child.ended(done).await
            })
        });
        let Some(pid) = begun.await? else { return Ok(String::new()) };
        let whole = self.whole(&Open::Reader(reader)).await?;
        self.status = self.wait_child(pid).await?;
        let text = String::from_utf8_lossy(&whole);
        Ok(text.trim_end_matches('\n').replace('\0', ""))
    }
}
