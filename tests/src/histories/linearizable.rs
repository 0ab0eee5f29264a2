//! Checks linearizability of one object: whether a store that carries out one operation at a time could have given the
//! observed answers. Each operation takes effect at one moment between its call and its answer; an operation without an
//! answer takes effect at any moment after its call, or never.
//!
//! Objects are independent here, so each is checked alone. The search is the algorithm of Wing and Gong, with Lowe's
//! cache of visited states: the remaining search depends only on the set of completed operations and the state after
//! them.

use std::collections::HashSet;
use std::fmt;

/// An operation on one object. All times are from one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterOperation {
    pub client: usize,
    pub called: u64,
    /// `None` if there was no answer. Such an operation may have been carried out, or may be carried out later.
    pub answered: Option<u64>,
    pub asked: RegisterCall,
    pub told: RegisterAnswer,
}

/// The request of an operation. Values are unique numbers: no two writes have the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterCall {
    Get,
    Create(u64),
    /// Replaces the version `replaces` of the object; `None` replaces any version.
    Update {
        replaces: Option<u64>,
        value: u64,
    },
    Delete {
        replaces: Option<u64>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterAnswer {
    /// The object that a get found, or that a write made.
    Is {
        version: u64,
        value: u64,
    },
    Deleted,
    NotFound,
    AlreadyExists,
    Conflict,
    Nothing,
}

/// The state after the operations so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct RegisterState {
    object: Option<RegisterObject>,
    /// The highest version in any answer. Later versions are higher.
    told: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RegisterObject {
    value: u64,
    /// The object's version; `None` until an answer shows the version.
    version: Option<u64>,
}

/// Operations for which no order gives the observed answers.
#[derive(Debug)]
pub struct Violation {
    /// The longest order of operations that gives their answers.
    pub explained: Vec<RegisterOperation>,
    /// The operations that cannot come next in this order.
    pub stuck: Vec<RegisterOperation>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { explained, stuck } = self;
        writeln!(f, "no order explains these answers. After")?;
        let last = explained.len().saturating_sub(SHOWN);
        explained[last..].iter().try_for_each(|operation| writeln!(f, "  {operation:?}"))?;
        writeln!(f, "none of these can be next:")?;
        stuck.iter().take(SHOWN).try_for_each(|operation| writeln!(f, "  {operation:?}"))
    }
}

const SHOWN: usize = 12;

/// Checks the operations on one object, which did not exist at first.
pub fn judge(operations: &[RegisterOperation]) -> Result<(), Violation> {
    let mut operations: Vec<&RegisterOperation> = operations.iter().filter(|operation| can_matter(operation)).collect();
    operations.sort_by_key(|operation| operation.called);
    let mut search = Search { operations: &operations, seen: HashSet::new() };
    search.run()
}

/// A get without an answer has no effect.
fn can_matter(operation: &RegisterOperation) -> bool {
    operation.answered.is_some() || operation.asked != RegisterCall::Get
}

struct Search<'o> {
    operations: &'o [&'o RegisterOperation],
    seen: HashSet<(CompletedOperations, RegisterState)>,
}

/// The set of completed operations, as bits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CompletedOperations(Vec<u64>);

impl CompletedOperations {
    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn with(&self, at: usize) -> CompletedOperations {
        let mut more = self.clone();
        more.0[at / 64] |= 1 << (at % 64);
        more
    }
}

/// A step of the search: the completed operations, and the candidates for the next operation.
struct SearchStep {
    done: CompletedOperations,
    state: RegisterState,
    next: Vec<usize>,
    /// The operation that led to this step.
    by: Option<usize>,
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), Violation> {
        let none = CompletedOperations(vec![0; self.operations.len().div_ceil(64)]);
        let Some(first) = self.step(none, RegisterState::default(), None) else { return Ok(()) };
        let mut way = vec![first];
        let mut best = (Vec::new(), way[0].next.clone());
        while let Some(step) = way.last_mut() {
            let Some(at) = step.next.pop() else {
                way.pop();
                continue;
            };
            let Some(state) = step.state.after(self.operations[at]) else { continue };
            let done = step.done.with(at);
            if !self.seen.insert((done.clone(), state)) {
                continue;
            }
            let Some(next) = self.step(done, state, Some(at)) else { return Ok(()) };
            let candidates = next.next.clone();
            way.push(next);
            if way.len() > best.0.len() + 1 {
                best = (way.iter().filter_map(|step| step.by).collect(), candidates);
            }
        }
        let told = |at: &Vec<usize>| at.iter().map(|at| self.operations[*at].clone()).collect();
        Err(Violation { explained: told(&best.0), stuck: told(&best.1) })
    }

    /// The candidates once `done` is completed; `None` if all answered operations are explained.
    fn step(&self, done: CompletedOperations, state: RegisterState, by: Option<usize>) -> Option<SearchStep> {
        let mut next = Vec::new();
        let mut answered_first = u64::MAX;
        let mut is_left = false;
        for (at, operation) in self.operations.iter().enumerate() {
            if operation.called > answered_first {
                break;
            }
            if done.has(at) {
                continue;
            }
            if let Some(answered) = operation.answered {
                is_left = true;
                answered_first = answered_first.min(answered);
            }
            next.push(at);
        }
        next.retain(|at| self.operations[*at].called <= answered_first);
        // Candidates are tried from the end. The operation that was answered first comes last, because it is the
        // likeliest to be next.
        next.sort_by_key(|at| std::cmp::Reverse(self.operations[*at].answered.unwrap_or(u64::MAX)));
        is_left.then_some(SearchStep { done, state, next, by })
    }
}

impl RegisterState {
    /// The state after an operation, if its answer is possible now.
    fn after(self, operation: &RegisterOperation) -> Option<RegisterState> {
        let RegisterOperation { asked, told, .. } = operation;
        match (asked, told) {
            (RegisterCall::Get, RegisterAnswer::Is { version, value }) => self.shows(*version, *value),
            (RegisterCall::Get, RegisterAnswer::NotFound) => self.object.is_none().then_some(self),
            (RegisterCall::Create(_), RegisterAnswer::AlreadyExists) => self.object.is_some().then_some(self),
            (RegisterCall::Create(value), RegisterAnswer::Is { version, value: made }) => (self.object.is_none()
                && value == made)
                .then_some(self.put(*value))
                .and_then(|next| next.shows(*version, *value)),
            (RegisterCall::Create(value), RegisterAnswer::Nothing) => self.object.is_none().then_some(self.put(*value)),
            (RegisterCall::Update { replaces, value }, RegisterAnswer::Is { version, value: made }) => {
                let next = self.replaced(*replaces)?.put(*value);
                (value == made).then_some(next).and_then(|next| next.shows(*version, *value))
            }
            (RegisterCall::Update { replaces, value }, RegisterAnswer::Nothing) => {
                Some(self.replaced(*replaces)?.put(*value))
            }
            (RegisterCall::Delete { replaces }, RegisterAnswer::Deleted | RegisterAnswer::Nothing) => {
                Some(RegisterState { object: None, ..self.replaced(*replaces)? })
            }
            (RegisterCall::Update { .. } | RegisterCall::Delete { .. }, RegisterAnswer::NotFound) => {
                self.object.is_none().then_some(self)
            }
            (RegisterCall::Update { replaces, .. } | RegisterCall::Delete { replaces }, RegisterAnswer::Conflict) => {
                // An unconditional update cannot conflict. An update of a version may conflict after a deletion,
                // because a deleted object no longer has this version.
                let replaces = (*replaces)?;
                (self.object.and_then(|object| object.version) != Some(replaces)).then_some(self)
            }
            _ => None,
        }
    }

    /// The state if the object exists and has, or may have, this version.
    fn replaced(self, replaces: Option<u64>) -> Option<RegisterState> {
        let object = self.object?;
        match replaces {
            Some(replaces) => self.shows(replaces, object.value),
            None => Some(self),
        }
    }

    fn put(self, value: u64) -> RegisterState {
        RegisterState { object: Some(RegisterObject { value, version: None }), ..self }
    }

    /// The state after an answer that shows the object with this value and version: the object then has this version.
    /// Returns `None` if the answer contradicts the state.
    fn shows(self, version: u64, value: u64) -> Option<RegisterState> {
        let object = self.object.filter(|object| object.value == value)?;
        match object.version {
            Some(known) => (known == version).then_some(self),
            None if version > self.told => {
                Some(RegisterState { object: Some(RegisterObject { value, version: Some(version) }), told: version })
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn operation(called: u64, answered: Option<u64>, asked: RegisterCall, told: RegisterAnswer) -> RegisterOperation {
        RegisterOperation { client: 0, called, answered, asked, told }
    }

    fn is(version: u64, value: u64) -> RegisterAnswer {
        RegisterAnswer::Is { version, value }
    }

    fn update(replaces: u64, value: u64) -> RegisterCall {
        RegisterCall::Update { replaces: Some(replaces), value }
    }

    const GET: RegisterCall = RegisterCall::Get;
    const CREATE: RegisterCall = RegisterCall::Create(1);
    const DELETE: RegisterCall = RegisterCall::Delete { replaces: None };

    #[track_caller]
    fn check(is_right: bool, operations: &[(u64, Option<u64>, RegisterCall, RegisterAnswer)]) {
        let operations: Vec<RegisterOperation> = operations
            .iter()
            .map(|(called, answered, asked, told)| operation(*called, *answered, *asked, *told))
            .collect();
        let judged = judge(&operations);
        assert_eq!(judged.is_ok(), is_right, "{judged:?}");
    }

    #[test]
    fn answers_in_order_are_right() {
        check(true, &[]);
        check(
            true,
            &[
                (1, Some(2), GET, RegisterAnswer::NotFound),
                (3, Some(4), CREATE, is(7, 1)),
                (5, Some(6), CREATE, RegisterAnswer::AlreadyExists),
                (7, Some(8), update(7, 2), is(9, 2)),
                (9, Some(10), update(7, 3), RegisterAnswer::Conflict),
                (11, Some(12), GET, is(9, 2)),
                (13, Some(14), DELETE, RegisterAnswer::Deleted),
                (15, Some(16), update(9, 4), RegisterAnswer::NotFound),
                (17, Some(18), RegisterCall::Create(5), is(12, 5)),
            ],
        );
    }

    #[test]
    fn what_overlaps_may_be_in_any_order() {
        // The get may come before the create, or after it.
        for told in [RegisterAnswer::NotFound, is(7, 1)] {
            check(true, &[(1, Some(10), CREATE, is(7, 1)), (2, Some(3), GET, told)]);
        }
        check(true, &[(1, Some(10), CREATE, is(7, 1)), (2, Some(3), GET, is(7, 1)), (4, Some(5), GET, is(7, 1))]);
    }

    #[test]
    fn a_write_without_an_answer_is_done_at_any_time_or_never() {
        let unknown = (5, None, update(7, 2), RegisterAnswer::Nothing);
        let created = (1, Some(2), CREATE, is(7, 1));
        check(true, &[created, unknown, (6, Some(7), GET, is(7, 1)), (8, Some(9), GET, is(8, 2))]);
        check(true, &[created, unknown, (6, Some(7), GET, is(7, 1)), (8, Some(9), update(7, 3), is(8, 3))]);
        check(true, &[created, unknown, (6, Some(7), update(7, 3), RegisterAnswer::Conflict)]);
        check(true, &[created, (5, None, GET, RegisterAnswer::Nothing), (6, Some(7), DELETE, RegisterAnswer::Deleted)]);
    }

    // Each case is the answer of a server with one bug.

    #[test]
    fn a_stale_read_is_found() {
        check(false, &[(1, Some(2), CREATE, is(7, 1)), (3, Some(4), GET, RegisterAnswer::NotFound)]);
        check(
            false,
            &[(1, Some(2), CREATE, is(7, 1)), (3, Some(4), update(7, 2), is(8, 2)), (5, Some(6), GET, is(7, 1))],
        );
    }

    #[test]
    fn an_acknowledged_write_that_is_lost_is_found() {
        let created = (1, Some(2), CREATE, is(7, 1));
        check(false, &[created, (3, Some(4), update(7, 2), is(8, 2)), (5, Some(6), update(7, 3), is(9, 3))]);
        check(false, &[created, (3, Some(4), RegisterCall::Create(2), is(8, 2))]);
        check(false, &[created, (3, Some(4), DELETE, RegisterAnswer::Deleted), (5, Some(6), GET, is(7, 1))]);
    }

    #[test]
    fn an_unknown_outcome_that_is_told_as_a_failure_is_found() {
        // The update was carried out, and then conflicted with its own write.
        check(
            false,
            &[
                (1, Some(2), CREATE, is(7, 1)),
                (3, Some(4), update(7, 2), RegisterAnswer::Conflict),
                (5, Some(6), GET, is(8, 2)),
            ],
        );
        check(false, &[(1, Some(2), CREATE, RegisterAnswer::AlreadyExists), (3, Some(4), GET, is(7, 1))]);
    }

    #[test]
    fn a_write_that_is_done_twice_is_found() {
        check(
            false,
            &[
                (1, Some(2), CREATE, is(7, 1)),
                (3, Some(4), DELETE, RegisterAnswer::Deleted),
                (5, Some(6), GET, is(9, 1)),
            ],
        );
        check(false, &[(1, Some(2), CREATE, is(7, 1)), (3, Some(4), GET, is(8, 1))]);
    }

    #[test]
    fn a_version_that_falls_is_found() {
        check(false, &[(1, Some(2), CREATE, is(7, 1)), (3, Some(4), update(7, 2), is(6, 2))]);
    }

    #[test]
    fn an_answer_that_depends_on_an_unknown_write_binds_it() {
        // Once the unknown update was seen, the replaced value must not be seen again.
        check(
            false,
            &[
                (1, Some(2), CREATE, is(7, 1)),
                (3, None, update(7, 2), RegisterAnswer::Nothing),
                (4, Some(5), GET, is(8, 2)),
                (6, Some(7), GET, is(7, 1)),
            ],
        );
    }

    /// A single store, and clients whose calls and answers take time. Some answers get lost.
    fn recorded(seed: u64, clients: usize, count: usize) -> Vec<RegisterOperation> {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut object, mut version, mut time) = (None::<(u64, u64)>, 1, 0);
        let mut free_at = vec![0; clients];
        let mut operations: Vec<RegisterOperation> = Vec::new();
        for nth in 0..count as u64 {
            time += random.random_range(1..4u64);
            let client = random.random_range(0..clients);
            let called = free_at[client] + 1;
            // The operation takes effect now; it was called before, and is answered later.
            let done = time.max(called);
            time = done;
            let answered = done + random.random_range(0..6);
            free_at[client] = answered;
            let is_lost = random.random_ratio(1, 12);
            let known = object.map(|(version, _)| if random.random_ratio(1, 4) { version - 1 } else { version });
            let asked = match random.random_range(0..10) {
                0..4 => GET,
                4 | 5 => RegisterCall::Create(nth),
                6..9 => RegisterCall::Update { replaces: known, value: nth },
                _ => DELETE,
            };
            let is_never_done = is_lost && random.random_ratio(1, 2);
            let was = object;
            let mut write = |value| {
                if !is_never_done {
                    version += 1;
                    object = Some((version, value));
                }
                is(version, value)
            };
            let told = match (asked, was) {
                (GET, Some((version, value))) => is(version, value),
                (GET, None) => RegisterAnswer::NotFound,
                (RegisterCall::Create(_), Some(_)) => RegisterAnswer::AlreadyExists,
                (RegisterCall::Create(value), None) => write(value),
                (_, None) => RegisterAnswer::NotFound,
                (RegisterCall::Update { replaces: Some(replaces), .. }, Some((version, _))) if replaces != version => {
                    RegisterAnswer::Conflict
                }
                (RegisterCall::Update { value, .. }, Some(_)) => write(value),
                (RegisterCall::Delete { .. }, Some(_)) => {
                    if !is_never_done {
                        version += 1;
                        object = None;
                    }
                    RegisterAnswer::Deleted
                }
            };
            let (answered, told) = if is_lost { (None, RegisterAnswer::Nothing) } else { (Some(answered), told) };
            operations.push(RegisterOperation { client, called, answered, asked, told });
        }
        operations
    }

    #[test]
    fn what_one_store_answers_is_right_and_what_it_does_not_is_found() {
        let mut found = 0;
        for seed in 0..200 {
            let operations = recorded(seed, 5, 120);
            if let Err(violation) = judge(&operations) {
                panic!("seed {seed}: {violation}");
            }
            // The last acknowledged write is undone: later reads show a state that never was.
            let mut lost = operations.clone();
            let mut random = StdRng::seed_from_u64(seed);
            let gets: Vec<usize> = (0..lost.len())
                .filter(|at| matches!(lost[*at].told, RegisterAnswer::Is { .. }) && lost[*at].asked == GET)
                .collect();
            let at = gets[random.random_range(0..gets.len())];
            lost[at].told = is(1_000_000, 1_000_000);
            found += usize::from(judge(&lost).is_err());
        }
        assert_eq!(found, 200);
    }
}
