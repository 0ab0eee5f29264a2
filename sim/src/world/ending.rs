//! Ends a server by a crash at any point, and brings the simulated world to rest at the end.

use super::World;
use crate::coverage::{Mark, saw};
use crate::disk::{AppendPoint, Planned};
use crate::fuse::Moment;
use crate::oracle::{self, CheckResult, ensure};
use crate::reader::Sight;
use crate::server::SimulatedServer;
use holdfast_core::apply::replay;
use holdfast_core::digest::Digest;
use holdfast_core::event::Offset;
use holdfast_core::kinds::registry;
use holdfast_core::state::State;
use holdfast_engine::LogRead;
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;

impl World {
    /// The server crashes at a random point.
    pub fn crash_somewhere(&mut self) -> CheckResult {
        let before = self.crashes;
        let mark = match self.dice.below(11) {
            0 | 1 => None,
            2..=5 => {
                let (stage, mark) = self.dice.pick(&[
                    (AppendPoint::BeforeWrite, Mark::CrashBeforeWrite),
                    (AppendPoint::BetweenWriteAndSync, Mark::CrashBeforeSync),
                    (AppendPoint::AfterSync, Mark::CrashAfterSync),
                ]);
                self.note(|_| format!("the server is to die in an append: {stage:?}"));
                self.disk.plan(Planned::Crash(stage), 0, 0);
                self.commit(4)?;
                Some(mark)
            }
            6 => {
                self.note(|_| "a sync is to fail, and the server is to die while it recovers".into());
                self.disk.plan(Planned::SyncFails, 0, self.dice.number());
                self.commit(4)?;
                if self.crashes == before {
                    self.disk.plan(Planned::Crash(AppendPoint::Recovery), 0, 0);
                    self.commit(1)?;
                }
                Some(Mark::CrashRecovering)
            }
            _ => {
                let (moment, mark) = self.dice.pick(&[
                    (Moment::Deliver, Mark::CrashDelivering),
                    (Moment::Delivered, Mark::CrashDelivered),
                    (Moment::Answer, Mark::CrashAnswering),
                ]);
                self.note(|_| format!("the server is to die at a commit: {moment:?}"));
                self.commit_on_fuse(moment)?;
                Some(mark)
            }
        };
        if let Some(mark) = mark.filter(|_| self.crashes > before) {
            saw(mark);
            return Ok(());
        }
        // The writer had nothing to commit, so the server did not crash at the planned point. It crashes now.
        saw(if self.disk.is_broken() { Mark::CrashInTrouble } else { Mark::CrashIdle });
        self.crash()
    }

    fn commit_on_fuse(&mut self, moment: Moment) -> CheckResult {
        let waker = self.fuse.waker();
        let hub = self.server.engine.hub().clone();
        let mut committed = pin!(hub.committed().notified());
        match moment {
            Moment::Deliver => self.followers.iter_mut().for_each(|follower| follower.wait(&waker)),
            Moment::Delivered => drop(committed.as_mut().poll(&mut Context::from_waker(&waker))),
            Moment::Answer => {}
        }
        self.fuse.light();
        let verdict = self.commit(4);
        self.fuse.put_out();
        verdict
    }

    /// The server crashes, loses everything that is not durable, and starts again.
    pub fn crash(&mut self) -> CheckResult {
        self.fuse.put_out();
        self.crashes += 1;
        let before = self.server.engine.snapshot();
        let answers = self.last_answers();
        self.followers.iter_mut().for_each(|follower| follower.outlive());
        self.seen.clear();
        self.disk.crash(self.dice.number()).map_err(|fault| fault.to_string())?;
        self.server = SimulatedServer::start(&self.disk, &self.clock)?;
        self.fuse.watch(&self.server.engine);
        self.waiting.clear();
        let after = self.server.engine.snapshot();
        self.note(|_| format!("crash at {}, restart at {}", before.offset, after.offset));
        self.check_outlived()?;
        self.learn()?;
        let last = self.twin.last();
        ensure(after.offset.0 == last, || format!("it restarts at {} where the log ends at {last}", after.offset))?;
        ensure(before.offset <= after.offset, || format!("version {} was shown and is lost", before.offset))?;
        oracle::check_state(&self.twin, &before).map_err(|why| format!("before the crash: {why}"))?;
        oracle::check_state(&self.twin, &after).map_err(|why| format!("after the restart: {why}"))?;
        if before.offset == after.offset {
            ensure(Digest::of(&before) == Digest::of(&after), || "the restart changed the digest".into())?;
        }
        for (pending, outcome) in answers {
            self.judge(&pending, &outcome, last, true)?;
        }
        self.told = self.told.min(last);
        for follower in &mut self.followers {
            follower.remember(&self.twin)?;
            saw(Mark::WatchResumedAfterCrash);
            follower.resume(sight!(self))?;
        }
        Ok(())
    }

    /// Checks that every event that was durable before the crash still exists, unless the log has forgotten it.
    fn check_outlived(&mut self) -> CheckResult {
        for offset in self.outlived + 1..=self.twin.last() {
            let found = self.disk.read(Offset(offset)).map_err(|fault| fault.to_string())?;
            let Some(version) = self.twin.event(offset) else { continue };
            let same = found.as_ref() == Some(&version.record);
            ensure(same || found.is_none() && self.twin.may_be_gone(version), || {
                format!("event {offset} was durable and is lost")
            })?;
        }
        self.outlived = self.twin.last();
        Ok(())
    }

    /// Lets everything that is in progress end.
    pub fn drain(&mut self) -> CheckResult {
        for _ in 0..1000 {
            if self.pending.is_empty() {
                return Ok(());
            }
            for at in (0..self.pending.len()).rev() {
                self.poll(at)?;
            }
            self.commit(3)?;
        }
        Err(format!("{} requests never end", self.pending.len()))
    }

    /// Brings the world to rest. No more requests are made, the janitor finishes its plans, and the watchers read all
    /// events. One more crash must not change the state.
    pub fn rest(&mut self) -> CheckResult {
        self.drain()?;
        for round in 0.. {
            self.commit(1)?;
            self.seen.clear();
            if self.tidy() == 0 && !self.disk.is_broken() {
                break;
            }
            ensure(round < 400, || "the janitor never ends".into())?;
            self.drain()?;
        }
        self.drain()?;
        oracle::check_rest(&self.twin)?;
        let published = self.server.engine.snapshot();
        let (offset, last) = (published.offset.0, self.twin.last());
        ensure(offset == last, || format!("{offset} is published, and the log ends at {last}"))?;
        for follower in &mut self.followers {
            // A watch may end because of an event that it reads. If so, the watcher opens another watch.
            for _ in 0..4 {
                if follower.is_cut() {
                    follower.resume(sight!(self))?;
                }
                while !follower.read(&self.twin, 16)? {}
            }
            follower.check(&self.twin, offset)?;
        }
        self.check_replay(&published)?;
        self.outlived = 0;
        self.crash()
    }

    /// Checks that folding the whole log from its beginning gives the state that the server serves.
    fn check_replay(&self, served: &State) -> CheckResult {
        let mut folded = State::new(Arc::new(registry().clone()));
        for offset in 1..=self.twin.last() {
            let Some(version) = self.twin.event(offset) else { continue };
            replay(&mut folded, &version.record).map_err(|unknown| unknown.to_string())?;
        }
        let (of_log, of_served) = (Digest::of(&folded), Digest::of(served));
        ensure(of_log == of_served, || format!("the log gives {of_log}, and {of_served} is served"))
    }
}
