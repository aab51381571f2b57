//! Files that are right, and files that are wrong with what is said about them.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test` writes down what is said now. Read it as a user would before it is committed.

use crate::{file_name, files, reads_back};
use std::fs;
use std::path::Path;
use tollgate_limit::Time;
use tollgate_rules::{Compiled, RuleSet, Source};

fn source(file: &Path) -> Source {
    Source::new(file_name(file), fs::read_to_string(file).unwrap())
}

#[test]
fn good_files_load_and_read_the_same_when_they_are_written_again() {
    let files = files("good");
    assert!(files.len() >= 7);
    for file in files {
        let set = RuleSet::parse(&[source(&file)]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        reads_back(&set);
        let rules: usize = set.namespaces.iter().map(|namespace| namespace.rules.len()).sum();
        let compiled = Compiled::new(set, None, Time::ZERO);
        assert_eq!(compiled.namespaces().iter().map(|namespace| namespace.rules().len()).sum::<usize>(), rules);
    }
}

/// `foo.yaml` and, if there is one, `foo.second.yaml`.
fn sources(file: &Path) -> Vec<Source> {
    let second = file.with_extension("second.yaml");
    std::iter::once(source(file)).chain(second.exists().then(|| source(&second))).collect()
}

#[test]
fn each_bad_file_is_refused_with_what_is_written_beside_it() {
    let update = std::env::var_os("UPDATE_SNAPSHOTS").is_some();
    let mut differ = Vec::new();
    for file in files("bad") {
        let name = file_name(&file);
        if !name.ends_with(".yaml") || name.ends_with(".second.yaml") {
            continue;
        }
        let said = match RuleSet::parse(&sources(&file)) {
            Ok(set) => panic!("{name} was read: {set:#?}"),
            Err(mistakes) => format!("{mistakes}\n"),
        };
        let expected = file.with_extension("txt");
        if update {
            fs::write(&expected, &said).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != said {
            differ.push(format!("{name}:\n{said}"));
        }
    }
    assert!(differ.is_empty(), "other mistakes than expected:\n\n{}", differ.join("\n\n"));
}

#[test]
fn no_expectation_is_without_its_file() {
    for file in files("bad").iter().filter(|file| file_name(file).ends_with(".txt")) {
        assert!(file.with_extension("yaml").exists(), "{}", file.display());
    }
}
