//! Columns that line up, whatever script a name is in.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::view) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table: titles and rows of finished text.
pub(in crate::view) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

/// Columns of a name before it is cut.
const NAME_WIDTH_MAX: usize = 48;

impl Table {
    pub(in crate::view) fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|&(title, align)| (title.to_owned(), align)).collect();
        Self { columns, rows: Vec::new() }
    }

    pub(in crate::view) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Writes titles and rows, each indented by two. `title` styles the line of titles.
    pub(in crate::view) fn write(&self, into: &mut dyn Write, title: anstyle::Style) -> io::Result<()> {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].width());
            cells.chain([self.columns[column].0.width()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| title.clone()).collect();
        if titles.iter().any(|title| !title.is_empty()) {
            writeln!(into, "{title}{}{title:#}", self.line(&titles, &widths))?;
        }
        self.rows.iter().try_for_each(|row| writeln!(into, "{}", self.line(row, &widths)))
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::from(" ");
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            line.push(' ');
            match align {
                Align::Left => line.extend([cell.as_str(), &padding]),
                Align::Right => line.extend([padding.as_str(), cell]),
            }
            line.push(' ');
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// A name, cut in the middle if it is too wide: both ends of a path tell.
pub(in crate::view) fn cut(name: &str) -> String {
    if name.width() <= NAME_WIDTH_MAX {
        return name.to_owned();
    }
    let half = (NAME_WIDTH_MAX - 1) / 2;
    let take = |characters: &mut dyn Iterator<Item = char>| {
        let mut width = 0;
        characters
            .take_while(|character| {
                width += character.width().unwrap_or(0);
                width <= half
            })
            .collect::<String>()
    };
    let front = take(&mut name.chars());
    let back: String = take(&mut name.chars().rev()).chars().rev().collect();
    format!("{front}…{back}")
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::{Align, Table, cut};

    #[test]
    fn columns_line_up_for_wide_names() {
        let mut table = Table::new(&[("name", Align::Left), ("count", Align::Right)]);
        table.row(vec!["服务".to_owned(), "7".to_owned()]);
        table.row(vec!["web".to_owned(), "12345".to_owned()]);
        let mut text = Vec::new();
        table.write(&mut text, anstyle::Style::new()).unwrap();
        let text = String::from_utf8(text).unwrap();
        let ends: Vec<usize> = text.lines().map(UnicodeWidthStr::width).collect();
        assert_eq!(ends, [ends[0]; 3], "{text}");
    }

    #[test]
    fn a_long_path_keeps_both_ends() {
        let path = format!("/system.slice/{}/web.service", "x".repeat(80));
        let short = cut(&path);
        assert!(
            short.width() <= 48 && short.starts_with("/system.slice") && short.ends_with("/web.service"),
            "{short}"
        );
    }
}
