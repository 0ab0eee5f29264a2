//! The best of many numbers that change one at a time.

/// Numbers at the leaves of a tree whose inner nodes know the place of the largest below them.
#[derive(Debug, Default)]
pub struct Tournament {
    /// A power of two.
    width: usize,
    values: Vec<i64>,
    /// The root is at 1; below a node are those of twice its number.
    winners: Vec<u32>,
}

impl Tournament {
    /// What is lower than every number that counts.
    pub const OUT: i64 = i64::MIN;

    pub fn new(values: impl ExactSizeIterator<Item = i64>) -> Self {
        let width = values.len().next_power_of_two().max(1);
        let mut values: Vec<i64> = values.collect();
        values.resize(width, Tournament::OUT);
        let mut tournament = Tournament { width, values, winners: vec![0; width] };
        for node in (1..width).rev() {
            tournament.play(node);
        }
        tournament
    }

    pub fn len(&self) -> usize {
        self.width
    }

    pub fn set(&mut self, at: usize, value: i64) {
        if self.values[at] == value {
            return;
        }
        self.values[at] = value;
        let mut node = (self.width + at) / 2;
        while node >= 1 {
            self.play(node);
            node /= 2;
        }
    }

    /// The place of the largest number; the first where several are the largest. `None`: no number counts.
    pub fn best(&self) -> Option<usize> {
        let at = if self.width == 1 { 0 } else { self.winners[1] as usize };
        (self.values[at] != Tournament::OUT).then_some(at)
    }

    fn play(&mut self, node: usize) {
        let (left, right) = (self.below(2 * node), self.below(2 * node + 1));
        let winner = if self.values[right as usize] > self.values[left as usize] { right } else { left };
        self.winners[node] = winner;
    }

    fn below(&self, node: usize) -> u32 {
        if node < self.width { self.winners[node] } else { (node - self.width) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_known_after_every_change() {
        for count in [1usize, 2, 3, 7, 8, 9] {
            let mut plain = vec![Tournament::OUT; count];
            let mut tree = Tournament::new(plain.clone().into_iter());
            assert_eq!(tree.best(), None);
            for step in 0..200usize {
                let at = step * 7 % count;
                plain[at] = if step % 5 == 0 { Tournament::OUT } else { (step * 13 % 17) as i64 };
                tree.set(at, plain[at]);
                let most = *plain.iter().max().unwrap();
                let first = plain.iter().position(|value| *value == most).filter(|_| most != Tournament::OUT);
                assert_eq!(tree.best(), first);
            }
        }
    }
}
