//! Tables for people: columns that line up, cut to the width of a terminal.

use console::{measure_text_width, truncate_str};

use crate::display::{SHOWN, printable, shortened};

/// The space between two columns.
const GAP: usize = 3;

/// A table with a heading for each column.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(|heading| (*heading).to_owned());
        Table {
            rows: vec![headings.collect()],
        }
    }

    /// Adds a row. Long cells are cut, and characters that act on a terminal are escaped.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter();
        self.rows
            .push(cells.map(|cell| printable(&shortened(&cell, SHOWN))).collect());
    }

    /// The lines of the table; none is wider than `width`, if that is given.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| measure_text_width(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(widest).collect();
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width - measure_text_width(cell) + GAP));
            }
            let line = line.trim_end();
            match width {
                Some(width) => truncate_str(line, width, "…").into_owned(),
                None => line.to_owned(),
            }
        };
        self.rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_their_cells_are_as_wide_as_and_nothing_acts_on_the_terminal() {
        let mut table = Table::new(&["NAME", "PHASE"]);
        table.row(["machine-1".to_owned(), "Ready".to_owned()]);
        table.row(["機械".to_owned(), "a\u{1b}[2J".to_owned()]);
        let lines = table.lines(None);
        assert_eq!(
            lines,
            [
                "NAME        PHASE",
                "machine-1   Ready",
                "機械        a\\u{1b}[2J"
            ]
        );
        let narrow = table.lines(Some(8));
        assert_eq!(narrow, ["NAME   …", "machine…", "機械   …"]);
    }
}
