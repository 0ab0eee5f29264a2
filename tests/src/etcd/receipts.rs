//! Reads the receipts in the answer of a log on etcd to a commit.

use holdfast_engine::Append;
use holdfast_engine::log::Receipt;

/// The receipt of each decision.
pub fn numbered(append: Append) -> Vec<Receipt> {
    match append {
        Append::Numbered(receipts) => receipts,
        other => panic!("etcd numbers events: {other:?}"),
    }
}

/// The offset of a decision that was written.
pub fn at(receipts: &[Receipt], nth: usize) -> u64 {
    match &receipts[nth] {
        Receipt::At(offsets) => offsets[0].0,
        other => panic!("not written: {other:?}"),
    }
}
