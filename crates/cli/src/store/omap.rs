//! The commands of `spirula store object` about omaps.

use bytes::Bytes;
use spirula_store::Op;

use super::objects::{Input, Part, Target, print, print_names, value_of};
use super::offline::Offline;
use crate::error::Error;

/// What to do with an object's omap.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the keys of an object's omap
    ListOmap(Target),
    /// Show the value of an omap key
    GetOmap(Part),
    /// Set an omap key
    SetOmap {
        #[command(flatten)]
        part: Part,
        #[command(flatten)]
        value: Input,
    },
    /// Remove an omap key
    RmOmap(Part),
    /// Show the omap's header
    GetOmaphdr(Target),
    /// Set the omap's header
    SetOmaphdr {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        value: Input,
    },
}

impl Command {
    /// Runs the command on an open store.
    pub(super) fn run(&self, store: &mut Offline) -> Result<(), Error> {
        match self {
            Self::ListOmap(target) => {
                let pairs = target.find(store)?.omap()?;
                print_names(pairs.iter().map(|(key, _)| key))
            }
            Self::GetOmap(part) => {
                let pairs = part.target.find(store)?.omap()?;
                print(&value_of(&pairs, &part.name)?)
            }
            Self::SetOmap { part, value } => {
                let mut place = part.target.find(store)?;
                let key = place.key();
                let pairs = vec![(Bytes::from(part.name.clone()), value.read()?)];
                place.commit(vec![Op::OmapSet { key, pairs }])
            }
            Self::RmOmap(part) => {
                let mut place = part.target.find(store)?;
                value_of(&place.omap()?, &part.name)?;
                let key = place.key();
                let names = vec![Bytes::from(part.name.clone())];
                place.commit(vec![Op::OmapRm { key, names }])
            }
            Self::GetOmaphdr(target) => {
                let onode = target.find(store)?.onode()?;
                print(onode.omap_header())
            }
            Self::SetOmaphdr { target, value } => {
                let mut place = target.find(store)?;
                let (key, header) = (place.key(), value.read()?);
                place.commit(vec![Op::OmapHeader { key, header }])
            }
        }
    }
}
