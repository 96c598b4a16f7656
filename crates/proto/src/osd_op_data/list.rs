//! Listings of a PG.

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer, versioned};
use spirula_maps::{HObject, ObjectName};

use crate::macros::packed;

packed! {
    /// An object in a listing with namespaces.
    pub struct ListEntry {
        /// Its namespace.
        pub nspace: ObjectName,
        /// Its name.
        pub oid: ObjectName,
        /// Its locator key.
        pub locator: ObjectName,
    }
}

versioned! {
    /// Output of `PGNLS` and `PGNLS_FILTER`. The result is 1 where the PG ends, else the number of
    /// entries.
    #[derive(Eq)]
    pub struct PgNlsResponse("pg_nls_response_t", version 1, compat 1) {
        /// The place where the listing goes on; the end of the PG if it is complete.
        pub handle: HObject;
        /// In the PG's order.
        pub entries: Vec<ListEntry>;
    }
}

packed! {
    /// An object in a listing of one namespace.
    pub struct PgLsEntry {
        /// Its name.
        pub oid: ObjectName,
        /// Its locator key.
        pub locator: ObjectName,
    }
}

/// Output of `PGLS` and `PGLS_FILTER`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgLsResponse {
    /// The place where the listing goes on.
    pub handle: HObject,
    /// In the PG's order.
    pub entries: Vec<PgLsEntry>,
}

impl Encode for PgLsResponse {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.handle);
        w.put(&self.entries);
    }
}

impl Decode for PgLsResponse {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            1 => Ok(Self {
                handle: r.get()?,
                entries: r.get()?,
            }),
            _ => Err(Error::Invalid("pg_ls_response_t version")),
        }
    }
}

/// The filter of a filtered listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListFilter {
    /// `plain`, or `class.filter`.
    pub kind: String,
    /// The filter's arguments and, behind them, the handle where the listing goes on.
    pub rest: Vec<u8>,
}

impl Decode for ListFilter {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            kind: r.string()?,
            rest: r.rest().to_vec(),
        })
    }
}
