//! ImageLocality: prefers nodes that have a pod's images already.

use crate::object::Text;
use crate::plugin::{EqualNodes, MAX_SCORE, Plugin, SchedulingCycle, Score};
use crate::snapshot::node_info::NodeInfo;

pub const NAME: &str = "ImageLocality";

const MIB: i64 = 1024 * 1024;
/// If the pod's images on a node count for no more bytes than this, the node scores 0.
const LEAST: i64 = 23 * MIB;
/// If the pod's images on a node count for at least this many bytes for each container of the pod, the node gets the
/// highest score.
const MOST: i64 = 1000 * MIB;

#[derive(Debug)]
pub struct ImageLocality;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        NAME
    }

    fn score(&self, cycle: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        let images = cycle.pod.template.images.iter().map(with_tag).collect();
        Some(Box::new(ImageScore(images)))
    }
}

/// The name under which nodes list an image. An image without a tag is listed with the tag `latest`.
fn with_tag(image: &Text) -> Text {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') { image.clone() } else { format!("{image}:latest").into() }
}

struct ImageScore(Vec<Text>);

impl ImageScore {
    /// For each image of the pod, the number of bytes for which the image counts on a node that has it; `None` if no
    /// node has any of the pod's images.
    fn image_scores(&self, cycle: SchedulingCycle<'_>) -> Option<Vec<i64>> {
        let nodes = cycle.snapshot.node_count() as f64;
        let image_score = |image: &Text| {
            // The size is multiplied by the fraction of nodes that have the image, so that not all pods go to the few
            // nodes that have a rare image.
            let (size, nodes_with) = cycle.snapshot.image(image)?;
            Some((size as f64 * (nodes_with as f64 / nodes)) as i64)
        };
        let image_scores: Vec<_> = self.0.iter().map(image_score).collect();
        image_scores
            .iter()
            .any(Option::is_some)
            .then(|| image_scores.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// A node's score, from the bytes for which its images count.
    fn score_of(&self, cycle: SchedulingCycle<'_>, image_scores: &[i64], node: &NodeInfo) -> i64 {
        let there = self.0.iter().zip(image_scores).filter(|(image, _)| has(node, image));
        let sum = there.map(|(_, image_score)| *image_score).fold(0, i64::saturating_add);
        let most = MOST.saturating_mul(cycle.pod.template.containers);
        MAX_SCORE * (sum.min(most).max(LEAST) - LEAST) / (most - LEAST).max(1)
    }
}

fn has(node: &NodeInfo, image: &Text) -> bool {
    node.node.images.iter().any(|(name, _)| name == image)
}

impl Score for ImageScore {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        self.image_scores(cycle).map_or(0, |image_scores| self.score_of(cycle, &image_scores, node))
    }

    fn scores(&self, cycle: SchedulingCycle<'_>, nodes: &[EqualNodes]) -> Vec<i64> {
        let Some(image_scores) = self.image_scores(cycle) else { return vec![0; nodes.len()] };
        let score = |node: &NodeInfo| self.score_of(cycle, &image_scores, node);
        nodes.iter().map(|group| cycle.snapshot.node(group.node).map_or(0, score)).collect()
    }

    /// The bytes for which an image counts change whenever a node pulls the image, and whenever a node is added or
    /// removed. So the score depends on more than one node.
    fn is_local(&self) -> bool {
        false
    }

    fn mark_count(&self) -> usize {
        self.0.len().div_ceil(IMAGES_PER_MARK)
    }

    /// The marks are equal for nodes that have the same images of the pod.
    fn mark(&self, node: &NodeInfo, marks: &mut Vec<i64>) {
        for images in self.0.chunks(IMAGES_PER_MARK) {
            marks.push(images.iter().fold(0, |mark, image| mark << 1 | i64::from(has(node, image))));
        }
    }
}

/// How many images one mark covers; each image is one bit.
const IMAGES_PER_MARK: usize = 62;
