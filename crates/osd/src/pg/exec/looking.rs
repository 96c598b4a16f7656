//! The parts of a run that ops which return data or facts may touch.

use super::before::Before;
use super::work::Work;
use super::{Draft, Given, Left};

/// Executes an op that changes nothing: it sees the object as it was, and its size and existence as
/// the earlier ops left them.
pub(super) struct Looking<'e, 'a> {
    pub(super) given: &'e Given<'a>,
    pub(super) before: &'e mut Before<'a>,
    pub(super) draft: &'e Draft,
    pub(super) work: &'e mut Work<'a>,
    pub(super) left: &'e mut Left,
}
