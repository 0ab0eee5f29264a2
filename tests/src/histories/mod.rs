//! Histories of requests and answers, and their checks: whether a single store could have given these answers
//! ([`linearizable`]), and whether watches keep their guarantees ([`watches`]).

pub mod linearizable;
pub mod watches;
