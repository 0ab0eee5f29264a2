//! Counts what has happened in a simulation: accepted commands, faults, and the points at which the server crashed.
//!
//! A case that never occurs is never tested, however many seeds pass. So each case that must be tested has a mark,
//! which a simulation records when the case occurs. A test fails if a mark was recorded in none of its simulations.

use crate::act::{Act, Edit, PatchFormat};
use crate::pick::Pick;
use crate::shape::Sort;
use crate::workload::Order;
use holdfast_core::Refusal;
use holdfast_core::refusal::Forbidden;
use holdfast_core::request::{Format, Verb};
use std::cell::RefCell;

macro_rules! marks {
    ($($mark:ident)*) => {
        /// A case that must occur in at least one simulation of the test.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mark {
            $($mark),*
        }

        impl Mark {
            pub const ALL: &[Mark] = &[$(Mark::$mark),*];
        }
    };
}

marks! {
    // Marks of accepted commands.
    Created CreatedByGeneratedName CreatedByUpdate CreatedByApply
    Replaced ReplacedAtVersion ReplacedFromFile
    PatchedJson PatchedJsonTest PatchedMerge PatchedStrategic PatchedAtVersion
    Applied AppliedByForce AppliedNothing
    StatusReplaced StatusMerged StatusPatchedStrategic StatusPatchedJson StatusApplied Scaled ScaledByPatch Bound
    Deleted Evicted DeletedWithGrace DeletedAtOnce DeletedAtUid DeletedAtVersion
    DeletedOrphan DeletedForeground DeletedBackground
    FinalizerAdded FinalizerTaken
    MassDeleted MassDeletedSelection MassDeletedLimited MassRehearsed
    Rehearsed WithoutChange
    Defined Redefined DefinitionDeleted CustomCreated CustomChanged CustomScaled CustomReported
    NamespaceFinalized DefinitionReleased

    // Marks of refused commands.
    NotFound AlreadyExists Conflict ApplyConflict Forbidden Invalid Unprocessable UnsupportedMediaType BadRequest
    Unauthorized LedAstray TooManyRequests
    RedefinedMeanwhile DefinitionTerminating InsufficientStorage Unavailable OutcomeUnknown Stale

    // Marks of reads.
    GotNewest GotNothing GotPast GotExpired PastHidden EverythingDenied
    ListedWhole ListedInPages ListedAcrossWrites ListedAcrossCrash ListedSelection ListedPast ListExpired
    WaitedForVersion ReadAtTime PastWhole PastExpired PastWatched

    // Marks of watches.
    WatchStarted WatchTold WatchStartedInThePast
    WatchAdded WatchModified WatchDeleted WatchEntered WatchLeft
    WatchCut WatchResumed WatchResumedFromBookmark WatchResumedAfterCrash WatchFellBehind
    WatchForgotten WatchRedefined Bookmarked

    // Marks of faults of the disk.
    Full FullForLong WriteFailed SyncFailed SyncFalselyFailed
    BatchTorn BatchLostWhole BatchFoundWhole
    OthersAppended OthersWereFirst
    ClockForward ClockBack Forgotten ForgottenByAge ForgottenBySize

    // Marks of the points at which the server crashes.
    CrashIdle CrashInTrouble CrashBeforeWrite CrashBeforeSync CrashAfterSync CrashDelivering CrashDelivered
    CrashAnswering CrashRecovering
}

/// How many times each mark was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage([u64; Mark::ALL.len()]);

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage([0; Mark::ALL.len()])
    }
}

impl Coverage {
    pub fn add(&mut self, other: &Coverage) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    pub fn of(&self, mark: Mark) -> u64 {
        self.0[mark as usize]
    }

    /// The marks that were never recorded.
    pub fn missing(&self) -> Vec<Mark> {
        Mark::ALL.iter().copied().filter(|mark| self.of(*mark) == 0).collect()
    }
}

thread_local! {
    /// The marks that were recorded in the simulation of this thread.
    static SEEN: RefCell<Coverage> = RefCell::default();
}

/// Records a mark.
pub fn saw(mark: Mark) {
    SEEN.with_borrow_mut(|seen| seen.0[mark as usize] += 1);
}

/// Returns the counts since the last call, and sets them to 0.
pub fn take() -> Coverage {
    SEEN.take()
}

/// Records the marks of an accepted command. `changed` is `None` if the command made no event; otherwise it says
/// whether the event was the first event of the object.
pub fn saw_accepted(order: &Order, changed: Option<bool>) {
    let options = &order.request.options;
    if options.dry_run {
        saw(if matches!(order.act, Act::DeleteAll { .. }) { Mark::MassRehearsed } else { Mark::Rehearsed });
        return;
    }
    let mass = matches!(order.act, Act::DeleteAll { .. });
    let Some(new) = changed.or(mass.then_some(false)) else { return saw(Mark::WithoutChange) };
    let when = |holds: bool, mark: Mark| {
        if holds {
            saw(mark);
        }
    };
    let put = order.request.verb == Verb::Update;
    let custom = order.sort.is_custom();
    let definition = order.sort == Sort::CustomResourceDefinition;
    match &order.act {
        Act::Create { generated, .. } => {
            saw(if *generated { Mark::CreatedByGeneratedName } else { Mark::Created });
            when(custom, Mark::CustomCreated);
            when(definition, Mark::Defined);
        }
        Act::Replace { version, uid, .. } => {
            saw(if new { Mark::CreatedByUpdate } else { Mark::Replaced });
            when(version.is_some(), Mark::ReplacedAtVersion);
            when(uid.is_empty() && !new, Mark::ReplacedFromFile);
            when(custom, Mark::CustomChanged);
            when(definition, Mark::Redefined);
        }
        Act::Change { edit, format, version, test } => {
            saw(match format {
                PatchFormat::Merge => Mark::PatchedMerge,
                PatchFormat::Strategic => Mark::PatchedStrategic,
                PatchFormat::Json => Mark::PatchedJson,
            });
            when(matches!(edit, Edit::AddFinalizer(_)), Mark::FinalizerAdded);
            when(matches!(edit, Edit::DropFinalizer(_)), Mark::FinalizerTaken);
            when(test.is_some(), Mark::PatchedJsonTest);
            when(version.is_some(), Mark::PatchedAtVersion);
            when(custom, Mark::CustomChanged);
            when(definition, Mark::Redefined);
        }
        Act::Apply { fields, force, .. } => {
            saw(if new { Mark::CreatedByApply } else { Mark::Applied });
            when(*force && !new, Mark::AppliedByForce);
            when(fields.is_empty(), Mark::AppliedNothing);
            when(custom, Mark::CustomChanged);
        }
        Act::Status { .. } => {
            saw(match order.request.body.format {
                Format::MergePatch => Mark::StatusMerged,
                Format::StrategicMergePatch => Mark::StatusPatchedStrategic,
                Format::JsonPatch => Mark::StatusPatchedJson,
                Format::ApplyPatch => Mark::StatusApplied,
                _ => Mark::StatusReplaced,
            });
            when(custom, Mark::CustomReported);
        }
        Act::Scale { .. } => {
            saw(if put { Mark::Scaled } else { Mark::ScaledByPatch });
            when(custom, Mark::CustomScaled);
        }
        Act::Bind { .. } => saw(Mark::Bound),
        Act::Delete { grace, policy, uid, version } => {
            saw(if order.request.verb == Verb::Create { Mark::Evicted } else { Mark::Deleted });
            when(grace.is_some_and(|grace| grace > 0), Mark::DeletedWithGrace);
            when(*grace == Some(0), Mark::DeletedAtOnce);
            when(uid.is_some(), Mark::DeletedAtUid);
            when(version.is_some(), Mark::DeletedAtVersion);
            when(*policy == Some("Orphan"), Mark::DeletedOrphan);
            when(*policy == Some("Foreground"), Mark::DeletedForeground);
            when(*policy == Some("Background"), Mark::DeletedBackground);
            when(definition, Mark::DefinitionDeleted);
        }
        Act::DeleteAll { pick, limit, .. } => {
            saw(Mark::MassDeleted);
            when(!matches!(pick, Pick::In(_)), Mark::MassDeletedSelection);
            when(limit.is_some(), Mark::MassDeletedLimited);
        }
        Act::Finalize { .. } => saw(Mark::NamespaceFinalized),
        Act::Release { .. } => saw(Mark::DefinitionReleased),
        Act::Tell { .. } => {}
    }
}

/// Records the mark of a refused command.
pub fn saw_refused(refusal: &Refusal) {
    let mark = match refusal {
        Refusal::NotFound(_) => Mark::NotFound,
        Refusal::AlreadyExists { .. } => Mark::AlreadyExists,
        Refusal::Conflict { .. } => Mark::Conflict,
        Refusal::ApplyConflict { .. } => Mark::ApplyConflict,
        Refusal::Forbidden { why: Forbidden::DefinitionTerminating, .. } => Mark::DefinitionTerminating,
        Refusal::Forbidden { .. } => Mark::Forbidden,
        Refusal::Invalid { .. } => Mark::Invalid,
        Refusal::Unprocessable => Mark::Unprocessable,
        Refusal::UnsupportedMediaType { .. } => Mark::UnsupportedMediaType,
        Refusal::BadRequest(_) => Mark::BadRequest,
        Refusal::NoSuchPath => Mark::RedefinedMeanwhile,
        Refusal::InsufficientStorage(_) => Mark::InsufficientStorage,
        Refusal::Unavailable(_) => Mark::Unavailable,
        Refusal::Ruled(_) => Mark::Forbidden,
        Refusal::Internal(_) => Mark::OutcomeUnknown,
        _ => return,
    };
    saw(mark);
}
