//! The parts of a run that ops which change the object may touch.

use super::before::Before;
use super::ranges::Ranges;
use super::work::Work;
use super::{Draft, Given, Left};

/// Executes an op that changes the object's data, attributes, omap or existence.
pub(super) struct Changing<'e, 'a> {
    pub(super) given: &'e Given<'a>,
    pub(super) before: &'e mut Before<'a>,
    pub(super) draft: &'e mut Draft,
    pub(super) ranges: &'e mut Ranges<'a>,
    pub(super) work: &'e mut Work<'a>,
    pub(super) left: &'e mut Left,
}
