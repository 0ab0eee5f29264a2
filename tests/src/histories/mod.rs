//! Histories of what clients asked and were answered, and judges of them: whether one store without copies could have
//! answered so ([`linearizable`]), and whether watches keep their promises ([`watches`]).

pub mod linearizable;
pub mod watches;
