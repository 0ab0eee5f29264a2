//! All randomness of a simulation, which comes from one seed.

use holdfast_core::stamp::{Purpose, Stamp, Stream};
use jiff::Timestamp;

pub struct Dice {
    stream: Stream,
}

/// The seed of one step. Because each step has its own seed, omitting a step does not change the random numbers of
/// other steps.
pub fn step_seed(seed: u64, step: u64) -> u64 {
    let mut stream = stream(seed ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    stream.next()
}

fn stream(seed: u64) -> Stream {
    Stamp { time: Timestamp::UNIX_EPOCH, seed }.stream(Purpose::Token, 0)
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice { stream: stream(seed) }
    }

    pub fn number(&mut self) -> u64 {
        self.stream.next()
    }

    /// A random number from 0 to `bound` - 1. `bound` must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.stream.next() % bound as u64) as usize
    }

    /// Returns true with a probability of `percent` in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A random choice. Each choice has a weight, to which its probability is proportional.
    pub fn weighted<T: Copy>(&mut self, choices: &[(usize, T)]) -> T {
        let total = choices.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, choice) in choices {
            if at < *weight {
                return *choice;
            }
            at -= weight;
        }
        unreachable!("the weights add up to their sum")
    }
}
