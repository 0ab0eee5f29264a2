//! The memory that one response uses until it is sent, and the pieces that use this memory.

use bytes::Bytes;
use holdfast_engine::{Charge, Cut, Kept, Loss};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The memory that one response uses until it is sent. The body keeps a clone, and the memory is free when the last
/// clone is dropped.
#[derive(Clone)]
pub struct Held {
    /// The number of bytes that are in memory only for this response.
    pub bytes: usize,
    /// Whether the response shares the objects of the state. These objects need no memory of their own while the state
    /// has them.
    pub is_shared: bool,
    kept: Arc<Mutex<Counted>>,
    is_cut: Arc<AtomicBool>,
}

/// The error that ends a response early, because other users needed its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutOff;

impl std::fmt::Display for CutOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the answer was cut off, for it was not read and others needed its memory")
    }
}

impl std::error::Error for CutOff {}

/// The charges that count the memory of a response.
#[derive(Default)]
pub struct Counted {
    charges: Vec<Charge>,
    pub state: Option<Kept>,
    /// The iterator that makes the pieces of the response.
    pub pieces: Option<Weak<dyn Cut>>,
}

/// The pieces of a response, until they were sent or are cut off.
struct Pieces<I> {
    pieces: Mutex<Option<I>>,
    is_cut: Arc<AtomicBool>,
}

impl<I: Send> Cut for Pieces<I> {
    fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        let cut = self.pieces.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(cut);
    }
}

impl Held {
    pub fn new(bytes: usize, is_shared: bool) -> Held {
        Held { bytes, is_shared, kept: Arc::default(), is_cut: Arc::default() }
    }

    /// The pieces, which keep the memory counted until the last piece is dropped. They end early when other users need
    /// the memory, and [`end`](Self::end) then returns an error.
    pub fn over<I>(self, pieces: I) -> impl Iterator<Item = Bytes> + Send + Sync + use<I>
    where
        I: Iterator<Item = Bytes> + Send + Sync + 'static,
    {
        let pieces = Arc::new(Pieces { pieces: Mutex::new(Some(pieces)), is_cut: self.is_cut.clone() });
        let weak: Weak<Pieces<I>> = Arc::downgrade(&pieces);
        self.counted().pieces = Some(weak);
        std::iter::from_fn(move || {
            let _held = &self.kept;
            pieces.pieces.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.next()
        })
    }

    /// The end of the pieces, which is an error if the pieces were cut off.
    pub fn end(&self) -> impl Iterator<Item = Result<Bytes, CutOff>> + Send + Sync + use<> {
        let is_cut = self.is_cut.clone();
        std::iter::once_with(move || is_cut.load(Ordering::Relaxed)).filter(|is_cut| *is_cut).map(|_| Err(CutOff))
    }

    pub fn counted(&self) -> MutexGuard<'_, Counted> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a charge. When other users need its memory, the charge ends and the pieces are cut off.
    pub fn count(&self, mut charge: Charge) {
        let mut counted = self.counted();
        let (pieces, kept) = (counted.pieces.clone(), Arc::downgrade(&self.kept));
        charge.give_way_by(Loss::Reply, move || {
            pieces.as_ref().and_then(Weak::upgrade).into_iter().for_each(|pieces| pieces.cut());
            let gone =
                kept.upgrade().map(|kept| std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner)));
            drop(gone);
        });
        counted.charges.push(charge);
    }
}
