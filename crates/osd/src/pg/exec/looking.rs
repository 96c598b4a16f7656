//! What ops may touch that return data or facts.

use super::before::Before;
use super::work::Work;
use super::{Draft, Given, Left};

/// Executes an op that changes nothing: it has the object as it was, and its sizes and existence as the ops before left them.
pub(super) struct Looking<'e, 'a> {
    pub(super) given: &'e Given<'a>,
    pub(super) before: &'e mut Before<'a>,
    pub(super) draft: &'e Draft,
    pub(super) work: &'e mut Work<'a>,
    pub(super) left: &'e mut Left,
}
