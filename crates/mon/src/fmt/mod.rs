//! Output as the official monitor lays it out: JSON, tables and units.

mod json;
mod table;
mod units;

pub use json::{Format, float};
pub use table::{Align, Table};
pub use units::{addr_legacy, age, bytes, count, percent, time_iso};
