//! Table with columns that line up for names in any script, and that fit the terminal.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::{COLUMNS, Style, fold};

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::view) enum Align {
    /// Names, cut in the middle where there is too little room.
    Left,
    /// Numbers: never cut.
    Right,
    /// Sentences, in the last column, folded where there is too little room.
    Words,
}

/// Table of titles and rows of finished text.
pub(in crate::view) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<(anstyle::Style, Vec<String>)>,
    /// Titles of the columns that are left out first where there is too little room.
    spare: Vec<String>,
}

/// Maximum columns of a name before it is cut.
const NAME_WIDTH_MAX: usize = 48;
/// Columns that a name keeps before another column is left out for it.
const NAME_WIDTH_MIN: usize = 20;
/// Minimum columns for sentences next to the others. With fewer, they are below.
const WORDS_WIDTH_MIN: usize = 24;
/// Indent of sentences below a row, in columns.
const BELOW: usize = 6;

impl Table {
    pub(in crate::view) fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|&(title, align)| (title.to_owned(), align)).collect();
        Self { columns, rows: Vec::new(), spare: Vec::new() }
    }

    /// Sets the titles of the columns that are left out first, in this order, where there is too little room.
    /// The rightmost columns follow. A column without a title goes with the one before it.
    pub(in crate::view) fn spare<'a>(mut self, titles: impl IntoIterator<Item = &'a str>) -> Self {
        self.spare.extend(titles.into_iter().map(str::to_owned));
        self
    }

    pub(in crate::view) fn row(&mut self, cells: Vec<String>) {
        self.row_in(anstyle::Style::new(), cells);
    }

    /// Adds a row in a different style.
    pub(in crate::view) fn row_in(&mut self, style: anstyle::Style, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push((style, cells));
    }

    /// Writes titles and rows, each indented by two, then the columns that had no room.
    pub(in crate::view) fn write(mut self, into: &mut dyn Write, style: &Style) -> io::Result<()> {
        if !style.blocks {
            let cells = self.rows.iter_mut().flat_map(|(_, row)| row);
            cells.for_each(|cell| *cell = plain(cell));
        }
        let left_out = self.fit(style);
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.natural(column)).collect();
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| title.clone()).collect();
        if titles.iter().any(|title| !title.is_empty()) {
            writeln!(into, "{COLUMNS}{}{COLUMNS:#}", self.line(&titles, &widths, style))?;
        }
        for (looks, row) in &self.rows {
            writeln!(into, "{looks}{}{looks:#}", self.line(row, &widths, style))?;
        }
        if left_out.is_empty() {
            return Ok(());
        }
        let names = left_out.join(", ");
        writeln!(into, "  {COLUMNS}no room for {names}: a wider terminal or --json shows them{COLUMNS:#}")
    }

    fn natural(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|(_, row)| row[column].width());
        cells.chain([self.columns[column].0.width()]).max().unwrap_or(0)
    }

    /// Cuts names, then leaves out columns, until a row fits. Returns the titles of those that are left out.
    fn fit(&mut self, style: &Style) -> Vec<String> {
        let (Some(room), mut left_out) = (style.width, Vec::new()) else { return Vec::new() };
        loop {
            let widths: Vec<usize> = (0..self.columns.len())
                .map(|column| match self.columns[column].1 {
                    Align::Words => 0,
                    Align::Left | Align::Right => self.natural(column),
                })
                .collect();
            let least = |column: usize| match self.columns[column].1 {
                Align::Left => widths[column].min(NAME_WIDTH_MIN.max(self.columns[column].0.width())),
                Align::Right | Align::Words => widths[column],
            };
            let taken = |widths: &[usize]| widths.iter().map(|width| width + 2).sum::<usize>();
            let leasts: Vec<usize> = (0..widths.len()).map(least).collect();
            if taken(&leasts) <= room || self.columns.len() == 1 {
                let mut widths = widths;
                while taken(&widths) > room {
                    // The widest name yields first.
                    let gives = (0..widths.len()).filter(|&at| widths[at] > leasts[at]);
                    let Some(widest) = gives.max_by_key(|&at| widths[at]) else { break };
                    widths[widest] -= 1;
                }
                self.cut_to(&widths, style);
                return left_out;
            }
            left_out.extend(self.leave_out());
        }
    }

    fn cut_to(&mut self, widths: &[usize], style: &Style) {
        for (_, row) in &mut self.rows {
            for ((cell, &width), (_, align)) in row.iter_mut().zip(widths).zip(&self.columns) {
                if *align == Align::Left && cell.width() > width {
                    *cell = cut_to(cell, width, if style.blocks { "…" } else { "..." });
                }
            }
        }
    }

    /// Removes a column without content, else the first that can be spared, else the last. Returns its title,
    /// if it had content.
    fn leave_out(&mut self) -> Option<String> {
        let is_bound = |at: usize| at == 0 || self.columns[at].1 == Align::Words;
        let says = |at: usize| self.rows.iter().any(|(_, row)| !matches!(row[at].as_str(), "" | "–" | "-"));
        let last = (1..self.columns.len()).rev().find(|&at| !is_bound(at)).unwrap_or(self.columns.len() - 1);
        let titled = |title: &String| self.columns.iter().position(|(there, _)| there.trim_end() == title);
        let empty = (1..self.columns.len()).find(|&at| !is_bound(at) && !says(at));
        let spare = || self.spare.iter().find_map(titled).filter(|&at| !is_bound(at));
        let mut from = empty.or_else(spare).unwrap_or(last);
        let said = says(from);
        let mut to = from + 1;
        if empty.is_none() {
            while from > 1 && self.columns[from].0.is_empty() {
                from -= 1;
            }
            while to < self.columns.len() && self.columns[to].0.is_empty() && !is_bound(to) {
                to += 1;
            }
        }
        let title = self.columns[from].0.trim_end().to_owned();
        self.columns.drain(from..to);
        self.rows.iter_mut().for_each(|(_, row)| drop(row.drain(from..to)));
        (said && !title.is_empty()).then_some(title)
    }

    fn line(&self, cells: &[String], widths: &[usize], style: &Style) -> String {
        let mut line = String::from(" ");
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            line.push(' ');
            match align {
                Align::Left => line.extend([cell.as_str(), &padding]),
                Align::Right => line.extend([padding.as_str(), cell]),
                Align::Words => return words(line, cell, style),
            }
            line.push(' ');
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Returns a row that ends in words: next to it, folded, or below it.
fn words(mut line: String, words: &str, style: &Style) -> String {
    let at = line.width();
    let room = style.width.unwrap_or(usize::MAX);
    let folded =
        |width| words.lines().map(|line| fold::folded(line, width, 0)).collect::<Vec<_>>().join("\n");
    let widest = words.lines().map(unicode_width::UnicodeWidthStr::width).max().unwrap_or(0);
    if at + widest <= room || room.saturating_sub(at) >= WORDS_WIDTH_MIN {
        let folded = folded(room.saturating_sub(at));
        line.push_str(&folded.replace('\n', &format!("\n{}", " ".repeat(at))));
    } else {
        let below = " ".repeat(BELOW);
        let folded = folded(room.saturating_sub(BELOW));
        line.truncate(line.trim_end().len());
        line.extend(["\n", &below, &folded.replace('\n', &format!("\n{below}"))]);
    }
    line.truncate(line.trim_end().len());
    line
}

/// Returns text in ASCII, for a locale without UTF-8. It replaces the few other characters that pmbpf itself
/// writes. Names pass unchanged.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            'µ' => plain.push('u'),
            '–' => plain.push('-'),
            '…' => plain.push_str("..."),
            '×' => plain.push('x'),
            '→' => plain.push_str("->"),
            '±' => plain.push_str("+-"),
            '†' => plain.push_str("(ended)"),
            other => plain.push(other),
        }
    }
    plain
}

/// Returns a name, cut in the middle if it is too wide. Both ends of a path are significant.
pub(in crate::view) fn cut(name: &str) -> String {
    cut_to(name, NAME_WIDTH_MAX, "…")
}

fn cut_to(name: &str, width: usize, mark: &str) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    let half = width.saturating_sub(mark.width()) / 2;
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
    format!("{front}{mark}{back}")
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::{Align, Style, Table, cut};

    fn written(table: Table, width: Option<usize>) -> String {
        let mut bytes = Vec::new();
        table.write(&mut bytes, &Style { width, ..Style::default() }).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string()
    }

    #[test]
    fn columns_line_up_for_wide_names() {
        let mut table = Table::new(&[("name", Align::Left), ("count", Align::Right)]);
        table.row(vec!["服务".to_owned(), "7".to_owned()]);
        table.row(vec!["web".to_owned(), "12345".to_owned()]);
        let text = written(table, None);
        let ends: Vec<usize> = text.lines().map(UnicodeWidthStr::width).collect();
        assert_eq!(ends, [ends[0]; 3], "{text}");
    }

    fn wide() -> Table {
        let columns = [("owner", Align::Left), ("cpu", Align::Right), ("faults", Align::Right)];
        let mut table = Table::new(&[&columns[..], &[("wait", Align::Right), ("", Align::Words)]].concat());
        let name = format!("/{}/web.service", "x".repeat(20));
        table.row(["short", "1.00 s", "12345", "–", ""].map(str::to_owned).to_vec());
        table.row([&name, "200 ms", "7", "–", "one two three four five six"].map(str::to_owned).to_vec());
        table
    }

    #[test]
    fn a_table_that_is_too_wide_cuts_names_then_leaves_out_columns_and_says_which() {
        let full = written(wide(), None);
        assert_eq!(written(wide(), Some(200)), full);
        assert_eq!(written(wide(), Some(100)), full);
        let cut = written(wide(), Some(54));
        let row: Vec<_> = cut.lines().skip(2).take(2).collect();
        assert!(row[0].contains("…") && row[0].contains("web.service  200 ms"), "{cut}");
        assert_eq!(row[1].trim(), "one two three four five six", "there is no room for it beside: {cut}");
        let narrow = written(wide().spare(["faults"]), Some(32));
        // A column without content goes first, without a note.
        assert!(!narrow.contains("wait") && !narrow.contains("12345"), "{narrow}");
        assert!(narrow.contains("no room for faults: ") && narrow.contains("200 ms"), "{narrow}");
    }

    #[test]
    fn words_are_folded_in_their_column() {
        let mut table = Table::new(&[("name", Align::Left), ("says", Align::Words)]);
        table.row(["cycles", "one two three four five six"].map(str::to_owned).to_vec());
        let text = written(table, Some(34));
        let rows: Vec<_> = text.lines().collect();
        assert_eq!(rows, ["  name    says", "  cycles  one two three four five", "          six"]);
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
