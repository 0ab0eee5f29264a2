//! Planted bugs of the log on etcd, one at a time, to prove that the simulation finds each of them. They are not
//! compiled into normal builds.

holdfast_planted::bugs! {
    /// A planted bug of the log on etcd.
    pub enum Bug {
        /// A write without an answer is reported as failed.
        UnknownTakenForFailure,
        /// A write without an answer is reported as done.
        UnknownTakenForDone,
        /// A write is read back without raising the fence, so it may still happen later.
        FenceNotRaised,
        /// Transactions do not compare the fence, so a delayed transaction may succeed too late.
        FenceNotCompared,
        /// A transaction does not compare the version that it replaces, so the last of two concurrent updates wins.
        VersionNotCompared,
        /// The versions of other objects on which a decision depends are not compared.
        ExpectationsNotCompared,
        /// A watch that is opened again starts one revision too late.
        ResumeSkips,
        /// A write that succeeded although etcd reported that it is full is reported as failed.
        FullTakenForFailure,
        /// Objects that were deleted while no watch was open stay in the log if etcd has compacted the deletions.
        DeletionsMissed,
        /// An etcd restored from a backup is mistaken for the original.
        RestoreIgnored,
    }
}
