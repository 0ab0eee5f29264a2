//! The kinds of steps of the simulated world. Each kind has one function.

use super::{World, WorldStep};
use crate::act::Act;
use crate::coverage::{Mark, saw};
use crate::disk::Planned;
use crate::follower::Follower;
use crate::oracle::CheckResult;
use crate::reader::{self, Sight};
use crate::{past, workload};

impl World {
    pub fn run_step(&mut self, step: WorldStep) -> CheckResult {
        match step {
            WorldStep::Ask if self.pending.len() < self.plan.clients => self.ask_something(),
            WorldStep::AskBehind if self.pending.len() < self.plan.clients => self.ask_something_behind(),
            WorldStep::HandOver if self.pending.len() < self.plan.clients => self.hand_over(),
            WorldStep::Ask | WorldStep::AskBehind | WorldStep::HandOver | WorldStep::Poll => self.poll_somebody(),
            WorldStep::Commit => self.commit_some(),
            WorldStep::Get => self.get(),
            WorldStep::Read => self.read_on(),
            WorldStep::Bookmark => self.bookmark(),
            WorldStep::NewFollower => self.replace_follower(),
            WorldStep::Cut => self.cut_or_resume(),
            WorldStep::List => self.list(),
            WorldStep::Await => self.wait_for_version(),
            WorldStep::PastWhole => {
                self.commands += 1;
                self.note(|_| "somebody reads all of a past version".into());
                past::check_whole(&mut self.dice, sight!(self))
            }
            WorldStep::PastWatch => {
                self.commands += 1;
                self.note(|_| "somebody watches the past".into());
                past::check_watch(&mut self.dice, sight!(self))
            }
            WorldStep::PastTime => {
                self.commands += 1;
                self.note(|_| "somebody asks for a time".into());
                past::check_time(&mut self.dice, sight!(self))
            }
            WorldStep::Janitor => {
                self.tidy();
                Ok(())
            }
            WorldStep::Others => self.append_from_other_server(),
            WorldStep::Wait => self.let_time_pass(),
            WorldStep::Fault => self.plan_fault(),
            WorldStep::Forget => self.forget(),
            WorldStep::Crash => self.crash_somewhere(),
        }
    }

    fn ask_something(&mut self) -> CheckResult {
        let seen = self.some_snapshot();
        let id = self.id("c");
        let order = workload::order(&mut self.dice, &seen, &self.twin, id);
        let mass = matches!(order.act, Act::DeleteAll { .. });
        // The kind may be redefined between the authorization of a mass deletion and the decision. In this simulation
        // that happens only to requests that go past the service.
        if mass && self.dice.chance(60) {
            return self.ask_behind(order.of_admin(), seen);
        }
        self.ask(order, &seen);
        // Usually the request is decided at once. If it is not, other requests are decided first.
        if self.dice.chance(80) || mass { self.poll(self.pending.len() - 1) } else { Ok(()) }
    }

    fn ask_something_behind(&mut self) -> CheckResult {
        let seen = self.some_snapshot();
        let id = self.id("d");
        let order = workload::order(&mut self.dice, &seen, &self.twin, id).of_admin();
        self.ask_behind(order, seen)
    }

    fn hand_over(&mut self) -> CheckResult {
        let seen = self.server.engine.snapshot();
        let id = self.id("h");
        let Some(order) = workload::hand_over(&seen, &self.twin, id) else { return Ok(()) };
        self.ask(order, &seen);
        self.poll(self.pending.len() - 1)
    }

    fn poll_somebody(&mut self) -> CheckResult {
        if self.pending.is_empty() {
            return Ok(());
        }
        let at = self.dice.below(self.pending.len());
        self.poll(at)
    }

    fn commit_some(&mut self) -> CheckResult {
        let count = 1 + self.dice.below(5);
        if self.dice.chance(10) {
            let at = self.dice.below(self.followers.len());
            self.followers[at].wait(&self.fuse.waker());
        }
        self.commit(count)
    }

    fn get(&mut self) -> CheckResult {
        self.commands += 1;
        self.fresh()?;
        let sight = sight!(self);
        reader::get(&mut self.dice, sight, &mut self.history)
    }

    fn read_on(&mut self) -> CheckResult {
        let at = self.dice.below(self.followers.len());
        let count = 1 + self.dice.below(6);
        self.note(|_| format!("watcher {at} reads up to {count} events"));
        self.followers[at].read(&self.twin, count).map(drop)
    }

    fn bookmark(&mut self) -> CheckResult {
        let at = self.dice.below(self.followers.len());
        self.note(|_| format!("watcher {at} asks for a bookmark"));
        self.followers[at].bookmark(&self.twin)
    }

    fn replace_follower(&mut self) -> CheckResult {
        let at = self.dice.below(self.plan.watchers);
        self.commands += 1;
        self.followers[at] = Follower::draw(&mut self.dice, sight!(self))?;
        self.note(|world| {
            let Follower { sort, pick, .. } = &world.followers[at];
            format!("watcher {at} starts: {sort:?} {pick:?}")
        });
        Ok(())
    }

    fn cut_or_resume(&mut self) -> CheckResult {
        let at = self.dice.below(self.followers.len());
        if self.followers[at].is_cut() {
            self.commands += 1;
            self.followers[at].resume(sight!(self))?;
        } else {
            self.followers[at].cut();
        }
        self.note(|world| format!("watcher {at} is cut: {}", world.followers[at].is_cut()));
        Ok(())
    }

    fn let_time_pass(&mut self) -> CheckResult {
        let milliseconds = match self.dice.below(20) {
            0 | 1 => 400_000,
            // In these cases the clock is set back.
            2 | 3 => -(self.dice.below(900_000) as i64),
            _ => 1 + self.dice.below(20_000) as i64,
        };
        saw(if milliseconds < 0 { Mark::ClockBack } else { Mark::ClockForward });
        self.clock.advance(milliseconds);
        self.note(|_| format!("{milliseconds} ms pass"));
        Ok(())
    }

    fn plan_fault(&mut self) -> CheckResult {
        let fault = self.dice.pick(&[Planned::Full, Planned::WriteFails, Planned::SyncFails, Planned::SyncSaysItFails]);
        // A full disk may stay full for some time, so more recoveries may fail.
        let recoveries = if self.dice.chance(20) { self.dice.below(20) } else { self.dice.below(4) };
        self.disk.plan(fault, recoveries, self.dice.number());
        self.note(|_| format!("the next append meets {fault:?}, and {recoveries} recoveries fail"));
        Ok(())
    }
}
