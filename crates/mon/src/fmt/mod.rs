//! Output as the official monitor lays it out: JSON, XML, tables and units.

mod table;
mod text;
mod units;

pub use spirula_asok::fmt::{Format, Names, float, render_xml};
pub use table::{Align, Table};
pub use text::{cut, one_line};
pub use units::{addr_legacy, age, bytes, count, parse_time, percent, time_iso};
