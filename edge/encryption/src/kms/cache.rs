//! A limited number of keys that a plug-in has decrypted. The oldest key is dropped first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

pub struct Cache {
    keys: HashMap<Arc<[u8]>, [u8; 32]>,
    order: VecDeque<Arc<[u8]>>,
    most: usize,
}

impl Cache {
    pub fn new(most: usize) -> Cache {
        Cache { keys: HashMap::new(), order: VecDeque::new(), most }
    }

    pub fn get(&self, sealed: &[u8]) -> Option<[u8; 32]> {
        self.keys.get(sealed).copied()
    }

    pub fn put(&mut self, sealed: &[u8], key: [u8; 32]) {
        if self.most == 0 || self.keys.contains_key(sealed) {
            return;
        }
        if self.order.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        let sealed: Arc<[u8]> = sealed.into();
        self.order.push_back(sealed.clone());
        self.keys.insert(sealed, key);
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn most(&self) -> usize {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_goes_first_and_none_is_kept_where_none_may_be() {
        let mut cache = Cache::new(2);
        (0..3u8).for_each(|n| cache.put(&[n], [n; 32]));
        cache.put(&[2], [9; 32]);
        assert_eq!([0, 1, 2u8].map(|n| cache.get(&[n])), [None, Some([1; 32]), Some([2; 32])]);
        let mut none = Cache::new(0);
        none.put(&[1], [1; 32]);
        assert_eq!((none.get(&[1]), none.len()), (None, 0));
    }
}
