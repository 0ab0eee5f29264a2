//! ImageLocality: nodes that have a pod's images already are better.

use crate::object::Text;
use crate::plugin::{Cycle, MAX_SCORE, Plugin, Score};
use crate::snapshot::node_info::NodeInfo;

pub const NAME: &str = "ImageLocality";

const MIB: i64 = 1024 * 1024;
/// Less than this is no advantage.
const LEAST: i64 = 23 * MIB;
/// For each container, more than this is no greater advantage.
const MOST: i64 = 1000 * MIB;

#[derive(Debug)]
pub struct ImageLocality;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        NAME
    }

    fn score(&self, cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        let images = cycle.pod.template.images.iter().map(with_tag).collect();
        Some(Box::new(Images(images)))
    }
}

/// The name under which nodes list an image: with a tag where it has none.
fn with_tag(image: &Text) -> Text {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') { image.clone() } else { format!("{image}:latest").into() }
}

struct Images(Vec<Text>);

impl Score for Images {
    fn score(&self, cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        let nodes = cycle.snapshot.node_count() as f64;
        let worth = |image: &Text| match cycle.snapshot.image(image) {
            // An image that few nodes have counts less, so that pods do not pile up there.
            Some((size, nodes_with)) if node.node.images.iter().any(|(name, _)| name == image) => {
                (size as f64 * (nodes_with as f64 / nodes)) as i64
            }
            _ => 0,
        };
        let sum: i64 = self.0.iter().map(worth).fold(0, i64::saturating_add);
        let most = MOST.saturating_mul(cycle.pod.template.containers);
        MAX_SCORE * (sum.min(most).max(LEAST) - LEAST) / (most - LEAST).max(1)
    }

    fn rests_on_image(&self, name: &str) -> bool {
        self.0.iter().any(|image| **image == *name)
    }

    fn rests_on_node_count(&self, cycle: Cycle<'_>) -> bool {
        self.0.iter().any(|image| cycle.snapshot.image(image).is_some())
    }
}
