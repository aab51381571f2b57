//! Rules in files.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tollgate_rules::{Mistakes, RuleSet, Source};

/// Larger files are refused before they are read.
const LARGEST: u64 = 64 << 20;

/// How often files that change while they are being read are read again.
const ATTEMPTS: usize = 10;

/// Why rules could not be loaded. The ones before, if there are any, stay in force.
#[derive(Debug)]
pub enum LoadError {
    /// A file or directory could not be read.
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The rules are wrong.
    Wrong(Mistakes),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Unreadable { path, error } => write!(f, "cannot read rules from {}: {error}", path.display()),
            LoadError::Wrong(mistakes) => write!(f, "{mistakes}"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Unreadable { error, .. } => Some(error),
            LoadError::Wrong(mistakes) => Some(mistakes),
        }
    }
}

/// What files look like from outside: if this is the same, so are the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look(Vec<(PathBuf, u64, Option<SystemTime>, u64)>);

/// Reads the rules of a file, or of all `.yaml`, `.yml` and `.json` files of a directory, without an engine.
///
/// # Errors
/// What could not be read, or everything that is wrong with the rules.
pub fn read_rules(path: impl AsRef<Path>) -> Result<RuleSet, LoadError> {
    load(path.as_ref()).map(|(rules, _)| rules)
}

/// The rules of a file, or of all files of a directory, and what these looked like.
pub(crate) fn load(path: &Path) -> Result<(RuleSet, Look), LoadError> {
    let (sources, look) = read(path).map_err(|(path, error)| LoadError::Unreadable { path, error })?;
    Ok((RuleSet::parse(&sources).map_err(LoadError::Wrong)?, look))
}

/// Reads files that stand still meanwhile: half of the old ones with half of the new ones would be nobody's rules.
fn read(path: &Path) -> Result<(Vec<Source>, Look), (PathBuf, io::Error)> {
    let mut before = look(path)?;
    for _ in 0..ATTEMPTS {
        let sources = files_of(path)?.iter().map(|file| read_one(file)).collect::<Result<Vec<Source>, _>>();
        let after = look(path)?;
        if before == after {
            return Ok((sources?, after));
        }
        before = after;
    }
    Err((
        path.to_owned(),
        io::Error::other("it keeps changing while it is read; write to another file and rename that"),
    ))
}

fn read_one(path: &Path) -> Result<Source, (PathBuf, io::Error)> {
    let failed = |error| (path.to_owned(), error);
    if fs::metadata(path).map_err(failed)?.len() > LARGEST {
        return Err(failed(io::Error::other("it is larger than 64 MiB; split it")));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    Ok(Source::new(path.display().to_string(), text))
}

/// How files look from outside. Links are followed, as Kubernetes swaps a `ConfigMap` by swapping a link.
pub(crate) fn look(path: &Path) -> Result<Look, (PathBuf, io::Error)> {
    let look_at = |file: PathBuf| {
        let real = fs::canonicalize(&file).map_err(|error| (file.clone(), error))?;
        let metadata = fs::metadata(&real).map_err(|error| (file, error))?;
        Ok((real, metadata.len(), metadata.modified().ok(), inode(&metadata)))
    };
    files_of(path)?.into_iter().map(look_at).collect::<Result<_, _>>().map(Look)
}

/// Tells files apart that have the same length and the same time, as after a rename within the clock's resolution.
#[cfg(unix)]
fn inode(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}

/// The file itself, or the rule files of a directory by their names. Hidden ones are somebody else's business.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let failed = |error| (path.to_owned(), error);
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let is_rules =
            file.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known));
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_rules && !is_hidden && file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        // Taken for a set of no rules, an empty mount or a slip of the hand would let everything through.
        let problem = "there is no .yaml, .yml or .json file in it; for no rules at all, write a file that says so";
        return Err(failed(io::Error::new(io::ErrorKind::NotFound, problem)));
    }
    files.sort_unstable();
    Ok(files)
}
