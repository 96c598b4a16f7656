//! `ceph iostat`: a row of the current rates, which the tool asks for again and again. In the
//! layout of Ceph's module.

use spirula_text::size;

use super::pool_list::rates;
use super::{Call, Done, Reply, commands, now};
use crate::core::Turn;

commands! {
    "iostat width?:Int print_header?:Bool" "mgr" "r" iostat, "show what clients read and write";
}

const TITLES: [&str; 6] = ["Read", "Write", "Total", "Read IOPS", "Write IOPS", "Total IOPS"];

/// The assumed width of an unknown terminal.
const WIDTH: i64 = 80;
/// The largest width of a terminal.
const MAX_WIDTH: i64 = 4096;

fn row(cells: &[String], column: usize) -> String {
    let cells: String = cells
        .iter()
        .map(|c| format!("{c:>w$} |", w = column.saturating_sub(2)))
        .collect();
    format!("|{cells}")
}

fn header(column: usize) -> String {
    let line = format!(
        "+{}",
        format!("{}+", "-".repeat(column.saturating_sub(1))).repeat(TITLES.len())
    );
    format!("{line}\n{}\n{line}\n", row(&TITLES.map(str::to_owned), column))
}

fn iostat(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let width = call.args.opt_int("width")?.unwrap_or(WIDTH).clamp(0, MAX_WIDTH);
    let column = usize::try_from(width).unwrap_or(0) / TITLES.len();
    let r = rates(m.view, None);
    let bytes = |n: u64| format!("{}B/s", size::whole(n));
    let cells = [
        bytes(r.read_bytes),
        bytes(r.write_bytes),
        bytes(r.read_bytes + r.write_bytes),
        r.reads.to_string(),
        r.writes.to_string(),
        (r.reads + r.writes).to_string(),
    ];
    let head = if call.args.flag("print_header") {
        header(column)
    } else {
        String::new()
    };
    now(Reply::text(head + &row(&cells, column)).with_newline())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Ceph 16.2.15 prints them for terminals of these widths.
    #[test]
    fn rows_are_laid_out_as_officially() {
        let cells = ["0 B/s", "8 KiB/s", "8 KiB/s", "0", "8", "8"].map(str::to_owned);
        assert_eq!(
            row(&cells, 80 / 6),
            "|      0 B/s |    8 KiB/s |    8 KiB/s |          0 |          8 |          8 |"
        );
        assert_eq!(row(&cells, 0), "|0 B/s |8 KiB/s |8 KiB/s |0 |8 |8 |");
        let lines = header(80 / 6);
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            [
                "+------------+------------+------------+------------+------------+------------+",
                "|       Read |      Write |      Total |  Read IOPS | Write IOPS | Total IOPS |",
                "+------------+------------+------------+------------+------------+------------+",
            ]
        );
    }
}
