//! Scales ReplicaSets, one at a time or all in proportion.

use super::Sync;
use super::set::{DESIRED, MAX, Set};
use crate::subject::Subject;
use std::cmp::Reverse;

impl Sync<'_> {
    /// Whether `spec.replicas` changed since the sets were last scaled.
    pub fn is_resized(&self) -> bool {
        let replicas = self.replicas();
        self.sets().filter(|set| set.is_active()).any(|set| set.annotation(DESIRED).is_some_and(|was| was != replicas))
    }

    pub fn scale_new(&mut self, size: i64) -> bool {
        let Some(set) = self.new.take() else { return false };
        let (set, is_scaled) = self.scaled(set, size, false);
        self.new = Some(set);
        is_scaled
    }

    pub fn scale_old(&mut self, index: usize, size: i64) -> bool {
        let set = self.old.remove(index);
        let (set, is_scaled) = self.scaled(set, size, false);
        self.old.insert(index, set);
        is_scaled
    }

    /// Scales a set, and records the Deployment's sizes in its annotations. If only the annotations would change, the
    /// set is written only if `notes_matter`.
    fn scaled<'w>(&mut self, mut set: Set<'w>, size: i64, notes_matter: bool) -> (Set<'w>, bool) {
        let size = size.max(0);
        let notes = [(DESIRED, self.replicas()), (MAX, self.max_replicas())];
        let is_noted = notes.iter().all(|(name, number)| set.annotation(name) == Some(*number));
        let is_sized = set.replicas == size;
        if is_sized && (is_noted || !notes_matter) {
            return (set, false);
        }
        let subject = Subject::from(set.seen);
        let mut document = set.seen.object.document();
        document["spec"]["replicas"] = size.into();
        for (name, number) in notes {
            document["metadata"]["annotations"][name] = number.to_string().into();
        }
        let mut action = subject.update(document);
        if !is_sized {
            let direction = if size > set.replicas { "up" } else { "down" };
            let message = format!("Scaled {direction} replica set {} from {} to {size}", set.name(), set.replicas);
            action = action.with_event(self.subject().normal("ScalingReplicaSet", message));
        }
        self.then(action);
        set.replicas = size;
        (set, !is_sized)
    }

    /// Adjusts the sizes of the ReplicaSets to the Deployment's size. If at most one set has pods, one set gets the
    /// whole size; if the new set already has all pods, the old sets get 0; otherwise each set changes by its share.
    pub fn scale_all(&mut self) {
        let active = self.sets().filter(|set| set.is_active()).count();
        if active <= 1 {
            self.scale_the_only_one();
        } else if self.new_set_has_all() {
            for index in 0..self.old.len() {
                self.scale_old(index, 0);
            }
        } else if self.is_rolling() {
            self.scale_by_shares();
        }
    }

    fn scale_the_only_one(&mut self) {
        let size = self.replicas();
        let active = self.old.iter().position(Set::is_active);
        match active.or_else(|| self.old.len().checked_sub(1).filter(|_| self.new.is_none())) {
            Some(index) => _ = self.scale_old(index, size),
            None => _ = self.scale_new(size),
        }
    }

    fn new_set_has_all(&self) -> bool {
        let all = self.replicas();
        let has_all =
            |set: &Set<'_>| set.replicas == all && set.annotation(DESIRED) == Some(all) && set.available() == all;
        self.new.as_ref().is_some_and(has_all)
    }

    fn scale_by_shares(&mut self) {
        let allowed = if self.replicas() > 0 { self.max_replicas() } else { 0 };
        let change = allowed - self.asked();
        let mut all: Vec<(bool, Set<'_>)> = self.old.drain(..).map(|set| (false, set)).collect();
        all.extend(self.new.take().map(|set| (true, set)));
        // The largest set comes first. Among equally large sets, the newest grows first, and the oldest shrinks first.
        all.sort_by(|(_, one), (_, other)| {
            let by_age = if change > 0 { other.age().cmp(&one.age()) } else { one.age().cmp(&other.age()) };
            Reverse(one.replicas).cmp(&Reverse(other.replicas)).then(by_age)
        });
        let (mut sizes, mut done) = (Vec::new(), 0);
        for (_, set) in &all {
            let share = if set.is_active() { self.share(set, change, done) } else { 0 };
            done += share;
            sizes.push(set.replicas + share);
        }
        if let Some(largest) = sizes.first_mut() {
            *largest += change - done;
        }
        for ((is_new, set), size) in all.into_iter().zip(sizes) {
            let set = if set.is_active() { self.scaled(set, size, true).0 } else { set };
            match is_new {
                true => self.new = Some(set),
                false => self.old.push(set),
            }
        }
        self.old.sort_by(|one, other| one.age().cmp(&other.age()));
    }

    /// The number of pods by which one set grows or shrinks, if all sets together change by `change` pods and the sets
    /// before this set change by `done`.
    fn share(&self, set: &Set<'_>, change: i64, done: i64) -> i64 {
        let left = change - done;
        if left == 0 {
            return 0;
        }
        let wanted = match self.replicas() {
            0 => -set.replicas,
            _ => match set.annotation(MAX).filter(|max| *max != 0).unwrap_or(self.deployment.status.replicas) {
                0 => 0,
                before => rounded(set.replicas, self.max_replicas(), before) - set.replicas,
            },
        };
        if change > 0 { wanted.min(left) } else { wanted.max(left) }
    }
}

/// `number * numerator / denominator`, rounded to the nearest, halves away from zero.
fn rounded(number: i64, numerator: i64, denominator: i64) -> i64 {
    let product = 2 * i128::from(number) * i128::from(numerator);
    let (magnitude, divisor) = (product.unsigned_abs(), denominator.unsigned_abs());
    let rounded = (magnitude + u128::from(divisor)) / (2 * u128::from(divisor).max(1));
    let rounded = i64::try_from(rounded).unwrap_or(i64::MAX);
    if (product < 0) == (denominator < 0) { rounded } else { -rounded }
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn halves_go_away_from_zero() {
        assert_eq!(rounded(5, 3, 2), 8);
        assert_eq!(rounded(5, 33, 13), 13);
        assert_eq!(rounded(8, 33, 13), 20);
        assert_eq!(rounded(5, 3, -2), -8);
        assert_eq!(rounded(i64::MAX, i64::MAX, 1), i64::MAX);
    }
}
