//! Aligned columns (`src/common/TextTable.h`): two spaces between columns, headings aligned on
//! their own.

/// Where a cell's text stands in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// At the left edge.
    Left,
    /// Centred; the extra space is on the right.
    Center,
    /// At the right edge.
    Right,
}

#[derive(Debug)]
struct Column {
    heading: String,
    heading_align: Align,
    align: Align,
    width: usize,
}

/// A table under construction.
#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns: heading, its alignment, the cells' alignment.
    pub fn new(columns: &[(&str, Align, Align)]) -> Self {
        let mut t = Self::default();
        for (heading, heading_align, align) in columns {
            t.column(heading, *heading_align, *align);
        }
        t
    }

    /// Adds a column; only before the first row.
    pub fn column(&mut self, heading: &str, heading_align: Align, align: Align) {
        let width = heading.chars().count();
        self.columns.push(Column {
            heading: heading.to_owned(),
            heading_align,
            align,
            width,
        });
    }

    /// Adds a row. Missing cells are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().take(self.columns.len()).collect();
        row.resize(self.columns.len(), String::new());
        for (c, cell) in self.columns.iter_mut().zip(&row) {
            c.width = c.width.max(cell.chars().count());
        }
        self.rows.push(row);
    }

    /// The table as text; each line ends with a line feed. Columns without any heading print no
    /// heading line.
    pub fn render(&self) -> String {
        let mut out = String::new();
        if self.columns.iter().any(|c| !c.heading.is_empty()) {
            let cells = self
                .columns
                .iter()
                .map(|c| (c.heading.as_str(), c.heading_align, c.width));
            line(&mut out, cells);
        }
        for row in &self.rows {
            line(
                &mut out,
                row.iter()
                    .zip(&self.columns)
                    .map(|(s, c)| (s.as_str(), c.align, c.width)),
            );
        }
        out
    }
}

fn line<'a>(out: &mut String, cells: impl Iterator<Item = (&'a str, Align, usize)>) {
    for (i, (text, align, width)) in cells.enumerate() {
        if i > 0 {
            out.push_str("  ");
        }
        let free = width - text.chars().count().min(width);
        let before = match align {
            Align::Left => 0,
            Align::Center => (width / 2).saturating_sub(text.chars().count() / 2).min(free),
            Align::Right => free,
        };
        out.extend(std::iter::repeat_n(' ', before));
        out.push_str(text);
        out.extend(std::iter::repeat_n(' ', free - before));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut t = Table::new(&[
            ("ID", Align::Left, Align::Right),
            ("NAME", Align::Left, Align::Left),
        ]);
        t.row(["-1".into(), "root default".into()]);
        t.row(["0".into(), "osd.0".into()]);
        assert_eq!(
            t.render(),
            "ID  NAME        \n-1  root default\n 0  osd.0       \n"
        );
    }
}
