//! The data of options.

use bytes::Buf;

use crate::wire::{self, allocation};

/// Takes a string with its length before it.
fn string<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    let len = input.try_get_u32().ok()? as usize;
    if len > wire::MAX_STRING {
        return None;
    }
    let (text, rest) = input.split_at_checked(len)?;
    *input = rest;
    str::from_utf8(text).ok()
}

/// The data of INFO and GO.
pub(super) struct ExportQuery<'a> {
    pub(super) name: &'a str,
    /// The facts that the client asks for, two bytes each.
    facts: &'a [u8],
}

impl<'a> ExportQuery<'a> {
    pub(super) fn parse(mut data: &'a [u8]) -> Option<Self> {
        let name = string(&mut data)?;
        let count = data.try_get_u16().ok()?;
        (data.len() == 2 * usize::from(count)).then_some(Self { name, facts: data })
    }

    /// The facts that the client asks for, each once.
    pub(super) fn wanted(&self) -> impl Iterator<Item = u16> {
        let facts = self.facts.as_chunks::<2>().0;
        let all = facts.iter().enumerate();
        all.filter(|(i, fact)| !facts[..*i].contains(fact))
            .map(|(_, fact)| u16::from_be_bytes(*fact))
            // There are four; a client that asks for thousands has not read the protocol.
            .take(16)
    }
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub(super) struct ContextQuery<'a> {
    pub(super) name: &'a str,
    /// The number of queries.
    pub(super) count: u32,
    /// Whether a query asks for `base:allocation`.
    pub(super) allocation: bool,
    /// Whether a query asks for all of `base:`.
    pub(super) namespace: bool,
}

impl<'a> ContextQuery<'a> {
    pub(super) fn parse(mut data: &'a [u8]) -> Option<Self> {
        let name = string(&mut data)?;
        let count = data.try_get_u32().ok()?;
        let (mut allocation, mut namespace) = (false, false);
        for _ in 0..count {
            // A number larger than that of the actual queries fails here.
            let query = string(&mut data)?;
            allocation |= query == allocation::NAME;
            namespace |= query == allocation::NAMESPACE;
        }
        data.is_empty().then_some(Self {
            name,
            count,
            allocation,
            namespace,
        })
    }
}
