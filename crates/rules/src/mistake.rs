//! What is wrong with a rule file, where, and what would be right.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Mistakes beyond these are counted, not kept: nobody reads them, and the text decides how many there are.
const KEPT: usize = 1000;

/// Mistakes that are printed.
const PRINTED: usize = 50;

/// The longest piece of a line that is quoted.
const QUOTED: usize = 160;

/// What the regular expressions of one source may be compiled to.
const MEMORY: usize = 128 << 20;

/// Names that a wrong one is compared with.
const MOST_COMPARED: usize = 2_000;

/// A text with the name that its mistakes are reported under, usually that of a file.
#[derive(Clone, Debug)]
pub struct Source {
    name: Arc<str>,
    text: Arc<str>,
    /// Where its lines begin; found out when the first mistake is.
    lines: OnceLock<Vec<usize>>,
}

impl Source {
    /// A text and where it came from.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Source {
        Source { name: name.into(), text: text.into(), lines: OnceLock::new() }
    }

    /// Where it came from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// One line, from one.
    fn line(&self, line: u32) -> &str {
        let lines = self.lines.get_or_init(|| line_starts(&self.text));
        let start = lines.get((line as usize).saturating_sub(1)).copied().unwrap_or(self.text.len());
        self.text.get(start..).and_then(|rest| rest.split(['\n', '\r']).next()).unwrap_or_default()
    }

    /// Whether a text stands there just like this.
    pub(crate) fn has(&self, text: &str, place: Place) -> bool {
        let mut there = self.line(place.line).chars().skip((place.column as usize).saturating_sub(1));
        text.chars().all(|c| there.next() == Some(c))
    }

    /// The beginning of a line, with nothing in it that would garble a terminal. Each character stays one column wide.
    fn quote(&self, line: u32) -> Box<str> {
        let harmless = |c: char| match c {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        };
        self.line(line).chars().take(QUOTED).map(harmless).collect()
    }
}

/// Where lines begin, as YAML counts them: after a line feed, a carriage return, or both. A byte order mark is in no line.
fn line_starts(text: &str) -> Vec<usize> {
    let first = text.len() - text.trim_start_matches('\u{feff}').len();
    let bytes = text.as_bytes();
    let ends = bytes.iter().enumerate().filter(|(at, byte)| match byte {
        b'\n' => true,
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    });
    std::iter::once(first).chain(ends.map(|(at, _)| at + 1)).collect()
}

/// Where something stands in a source: lines and columns count from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Characters, as far as they are on the same line.
    pub(crate) width: u32,
}

impl Place {
    /// Some characters within the text that stands here.
    pub(crate) fn within(self, offset: usize, width: usize) -> Place {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Place { column: self.column.saturating_add(number(offset)), width: number(width.max(1)), ..self }
    }
}

/// One mistake in a rule file. Nothing was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    file: Arc<str>,
    place: Place,
    quoted: Box<str>,
    problem: Box<str>,
    help: Box<str>,
}

impl Mistake {
    /// The source's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, from one.
    pub fn line(&self) -> u32 {
        self.place.line
    }

    /// The column in characters, from one.
    pub fn column(&self) -> u32 {
        self.place.column
    }

    /// What is wrong.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What would be right.
    pub fn help(&self) -> &str {
        &self.help
    }
}

/// In the manner of rustc.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { line, column, width } = self.place;
        let margin = line.to_string().len();
        let before = (column as usize).saturating_sub(1);
        let meant: String = self.quoted.chars().skip(before).take(width as usize).collect();
        let underlined = meant.trim_end().chars().count().max(1);
        writeln!(f, "error: {}", self.problem)?;
        writeln!(f, "{:margin$}--> {}:{line}:{column}", "", self.file)?;
        writeln!(f, "{:margin$} |", "")?;
        writeln!(f, "{line} | {}", self.quoted)?;
        if before <= QUOTED {
            write!(f, "{:margin$} | {:before$}{:^<underlined$} {}", "", "", "", self.help)
        } else {
            write!(f, "{:margin$} = {}", "", self.help)
        }
    }
}

/// Everything that is wrong with a set of rules; the ones before stay in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    kept: Vec<Mistake>,
    total: usize,
}

impl Mistakes {
    /// The mistakes in the order of the sources and their lines. Of more than a thousand, only so many are kept.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.kept.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    fn add(&mut self, source: &Source, place: Place, problem: impl Into<Box<str>>, help: impl Into<Box<str>>) {
        self.total += 1;
        if self.kept.len() < KEPT {
            let (problem, help) = (problem.into(), help.into());
            let quoted = source.quote(place.line);
            self.kept.push(Mistake { file: source.name.clone(), place, quoted, problem, help });
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in self.kept.iter().take(PRINTED) {
            writeln!(f, "{mistake}\n")?;
        }
        let more = self.total.saturating_sub(PRINTED);
        if more > 0 {
            writeln!(f, "… and {more} more\n")?;
        }
        let s = if self.total == 1 { "" } else { "s" };
        write!(f, "{} mistake{s}; nothing was loaded", self.total)
    }
}

impl std::error::Error for Mistakes {}

/// Collects the mistakes of one source.
pub(crate) struct Report<'a> {
    pub(crate) source: &'a Source,
    mistakes: &'a mut Mistakes,
    /// Those before are other sources'.
    start: usize,
    /// What the regular expressions of this source may still be compiled to.
    memory: usize,
}

impl<'a> Report<'a> {
    pub(crate) fn new(source: &'a Source, mistakes: &'a mut Mistakes) -> Report<'a> {
        let start = mistakes.kept.len();
        Report { source, mistakes, start, memory: MEMORY }
    }

    /// Whether nobody reads what is added: help that is hard to find is not looked for any more.
    pub(crate) fn is_long(&self) -> bool {
        self.mistakes.total >= PRINTED
    }

    pub(crate) fn wrong(&mut self, place: Place, problem: impl Into<Box<str>>, help: impl Into<Box<str>>) {
        self.mistakes.add(self.source, place, problem, help);
    }

    pub(crate) fn has_memory_left(&self) -> bool {
        self.memory > 0
    }

    pub(crate) fn use_memory(&mut self, bytes: usize) {
        self.memory = self.memory.saturating_sub(bytes);
    }
}

/// Mistakes are found in the order in which things are looked at, and read in that of the lines.
impl Drop for Report<'_> {
    fn drop(&mut self) {
        let mut found = self.mistakes.kept.split_off(self.start);
        let all = found.len();
        found.sort_by_key(|mistake| (mistake.place.line, mistake.place.column));
        // What stands behind an anchor is looked at wherever it is meant.
        found.dedup();
        self.mistakes.total -= all - found.len();
        self.mistakes.kept.append(&mut found);
    }
}

/// The known name that a wrong one was probably meant to be.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > 64 {
        return None;
    }
    let name = name.to_ascii_lowercase().replace('_', "-");
    let close = |known: &&str| {
        let most = 1 + known.len() / 4;
        let distance = if name.len().abs_diff(known.len()) > 4 * most {
            usize::MAX
        } else {
            edits(&name, &known.replace('_', "-"))
        };
        (distance <= most).then_some(distance)
    };
    known
        .into_iter()
        .take(MOST_COMPARED)
        .filter_map(|known| Some((close(&known)?, known)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

/// Insertions, deletions, replacements and swaps of neighbours that make one text of another.
fn edits(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let cell = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX - 1);
            let mut least = (cell(&row, j) + usize::from(a != b)).min(cell(&row, j + 1) + 1).min(cell(&next, j) + 1);
            let swapped = i > 0 && j > 0 && from.get(i - 1) == Some(b) && to.get(j - 1) == Some(a);
            if swapped {
                least = least.min(cell(&before, j - 1) + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(0)
}
